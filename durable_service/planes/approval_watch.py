"""Following the approvals that are addressed to one actor."""

from collections.abc import Iterable
from typing import Final

from durable_service.caller import Caller
from durable_service.core.model import TaskRecord
from durable_service.planes.action_messages import approval_message, approval_state
from durable_service.planes.convert import timestamp_of
from durable_service.planes.following import BOOKMARK_MS, drain_notice
from durable_service.planes.parts import Parts
from durable_service.planes.watches import Watch
from durable_service.store.base import ApprovalMark, TaskChange
from sealwork.durable.v1 import approval_pb2, approval_service_pb2

_AT_ONCE: Final = 200


class ApprovalWatch:
    """One WatchApprovals call."""

    def __init__(self, parts: Parts, caller: Caller, watch: Watch) -> None:
        self._store = parts.store
        self._parts = parts
        self._caller = caller
        self._watch = watch
        # The latest record of each approval that has changed: what it was in between is skipped.
        self._changed: dict[str, TaskRecord] = {}

    async def run(self) -> None:
        """Tells what is pending and then what changes, until the call ends."""
        stop = self._parts.news.of_tenant(self._caller.tenant_id, self._note)
        try:
            await self._send_pending()
            while True:
                news = await self._watch.wait(BOOKMARK_MS / 1000)
                if self._watch.draining:
                    await self._send(drain_notice=drain_notice())
                    self._watch.draining = False
                if not await self._send_changed() and not news:
                    server_time = timestamp_of(self._parts.clock.now_ms())
                    await self._send(bookmark=approval_service_pb2.ApprovalBookmark(server_time=server_time))
        finally:
            stop()

    def _note(self, change: TaskChange) -> None:
        record = change.after
        if record is None or not record.approvals:
            return
        now_ms = record.updated_at_ms
        for approval in record.approvals.values():
            if approval.actor_id != self._caller.actor_id:
                continue
            before = None if change.before is None else change.before.approvals.get(approval.id)
            was = None
            if before is not None and change.before is not None:
                was = approval_state(change.before, before, change.before.updated_at_ms)
            if was != approval_state(record, approval, now_ms):
                self._changed[approval.id] = record
                self._watch.wake()

    async def _send_pending(self) -> None:
        after: ApprovalMark | None = None
        synced = False
        while not synced:
            page = await self._store.pending_approvals(
                self._caller.tenant_id, self._caller.actor_id, after, _AT_ONCE
            )
            now_ms = await self._store.now_ms()
            found = [(await self._store.get(item.key), item.approval) for item in page]
            synced = len(page) < _AT_ONCE
            if page:
                after = ApprovalMark(page[-1].approval.expires_at_ms, page[-1].approval.id)
            await self._send_batch(
                (approval_message(record, approval, now_ms) for record, approval in found if record),
                synced=synced,
            )

    async def _send_changed(self) -> bool:
        if not self._changed:
            return False
        changed, self._changed = self._changed, {}
        now_ms = await self._store.now_ms()
        messages = [
            approval_message(record, record.approvals[name], now_ms) for name, record in changed.items()
        ]
        for start in range(0, len(messages), _AT_ONCE):
            await self._send_batch(messages[start : start + _AT_ONCE], synced=True)
        return True

    async def _send_batch(self, approvals: Iterable[approval_pb2.Approval], *, synced: bool) -> None:
        await self._send(batch=approval_service_pb2.ApprovalBatch(approvals=approvals, synced=synced))

    async def _send(self, **frame: object) -> None:
        await self._watch.send(approval_service_pb2.WatchApprovalsResponse(**frame))  # type: ignore[arg-type]
