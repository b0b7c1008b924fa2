"""What operators see and do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import structlog

from durable_service.admission import Operation, facts_of
from durable_service.caller import Caller, for_caller, visible
from durable_service.core.canonical_json_reader import parse_canonical
from durable_service.core.definition import TaskKey
from durable_service.core.extensions import update_extension
from durable_service.core.model import Extension, TaskRecord
from durable_service.core.step import Decision
from durable_service.planes.action_messages import action_message
from durable_service.planes.convert import (
    TASK_STATES,
    driver_message,
    duration_of,
    holder_of,
    milliseconds_of_duration,
    status_message,
    timestamp_of,
)
from durable_service.planes.page_tokens import PageTokens
from durable_service.planes.parts import Parts
from durable_service.planes.refusals import role_not_allowed
from durable_service.planes.validation import LONGEST_DELAY_MS, Checks
from durable_service.principals import Role
from durable_service.purged_bytes import remove_bytes
from durable_service.store.base import UnknownMark
from sealwork.durable.v1 import admin_service_pb2, task_pb2

_log: Final = structlog.get_logger(__name__)

MOST_PURGED: Final = 500
_LONGEST_AGE_MS: Final = 100 * LONGEST_DELAY_MS


@dataclass(frozen=True)
class ReplicaFacts:
    """What the counts say of this process.

    Attributes:
        store: kind of the store, such as `sqlite`.
        uptime_ms: how long the process has run.
        sessions: how many streams of workers there are now.
    """

    instance: str
    store: str
    uptime_ms: Callable[[], int]
    sessions: Callable[[], int]


class AdminCalls:
    """The unary calls of DurableAdminService."""

    def __init__(self, parts: Parts, facts: ReplicaFacts) -> None:
        self._parts = parts
        self._store = parts.store
        self._facts = facts

    async def get_stats(
        self, caller: Caller, request: admin_service_pb2.GetStatsRequest
    ) -> admin_service_pb2.GetStatsResponse:
        return admin_service_pb2.GetStatsResponse(stats=await self.stats(caller))

    async def stats(self, caller: Caller) -> admin_service_pb2.DurableStats:
        """Counts of this replica, and of the caller's tenant."""
        now_ms = await self._store.now_ms()
        backlog = await self._store.backlog(caller.tenant_id)
        counts = [each for each in await self._store.counts() if each.tenant_id == caller.tenant_id]
        stats = admin_service_pb2.DurableStats(
            server_instance=self._facts.instance,
            version=_version(),
            uptime=duration_of(self._facts.uptime_ms()),
            store=self._facts.store,
            durable=self._store.capabilities.durable and self._parts.blobs.durable,
            worker_sessions=self._facts.sessions(),
            watches=len(self._parts.watches),
            tasks=[
                admin_service_pb2.TaskStateCount(state=TASK_STATES[each.state], count=each.tasks)
                for each in counts
                if each.tasks
            ],
            claimable_tasks=backlog.claimable,
            live_leases=backlog.live_leases,
            unknown_actions=backlog.unknown_actions,
            pending_approvals=backlog.pending_approvals,
        )
        for name, since_ms in (
            ("oldest_claimable", backlog.oldest_claimable_ms),
            ("oldest_unknown", backlog.oldest_unknown_ms),
            ("oldest_pending_approval", backlog.oldest_pending_ms),
        ):
            if since_ms is not None:
                getattr(stats, name).CopyFrom(duration_of(now_ms - since_ms))
        return stats

    async def list_unknown_actions(
        self, caller: Caller, request: admin_service_pb2.ListUnknownActionsRequest
    ) -> admin_service_pb2.ListUnknownActionsResponse:
        checks = Checks()
        size = checks.page(request.page_size)
        checks.span("min_age", request.min_age, 0, _LONGEST_AGE_MS)
        checks.raise_faults()
        tokens = PageTokens("ListUnknownActions", caller, request.min_age)
        mark = tokens.mark(request.page_token, int, str, str)
        after = UnknownMark(int(mark[0]), str(mark[1]), str(mark[2])) if mark else None
        youngest_ms = await self._store.now_ms() - milliseconds_of_duration(request.min_age)
        found = await self._store.unknown_actions(caller.tenant_id, after, size + 1)
        # The longest wait stands in front, so the first one that is too young ends the list.
        old = [each for each in found if each.action.updated_at_ms <= youngest_ms]
        response = admin_service_pb2.ListUnknownActionsResponse(
            actions=[
                admin_service_pb2.UnknownAction(
                    action=action_message(each.record, each.action, with_args=False),
                    status=status_message(each.record),
                    driver=driver_message(each.record.definition.driver),
                    unknown_since_time=timestamp_of(each.action.updated_at_ms),
                )
                for each in old[:size]
            ]
        )
        if len(old) > size:
            last = old[size - 1]
            response.next_page_token = tokens.token(
                last.action.updated_at_ms, last.record.key.task_id, last.action.id
            )
        return response

    async def purge_tasks(
        self, caller: Caller, request: admin_service_pb2.PurgeTasksRequest
    ) -> admin_service_pb2.PurgeTasksResponse:
        checks = Checks()
        checks.count("task_ids", len(request.task_ids), 0, MOST_PURGED)
        for index, task_id in enumerate(request.task_ids[:MOST_PURGED]):
            checks.identifier(f"task_ids[{index}]", task_id)
        checks.span("min_age", request.min_age, 0, _LONGEST_AGE_MS)
        checks.raise_faults()
        age_ms = max(milliseconds_of_duration(request.min_age), self._parts.retention_ms)
        # The bound of the store is exclusive, and a task is old enough when it has the very age.
        ended_before_ms = await self._store.now_ms() - age_ms + 1
        response = admin_service_pb2.PurgeTasksResponse()
        if request.task_ids:
            keys = [caller.key(task_id) for task_id in dict.fromkeys(request.task_ids)]
            keys = await self._purgeable(keys, ended_before_ms, response)
        else:
            found = await self._store.purgeable(caller.tenant_id, ended_before_ms, MOST_PURGED + 1)
            keys, response.more = list(found[:MOST_PURGED]), len(found) > MOST_PURGED
        await self._purge(caller, keys, ended_before_ms, response, dry_run=request.dry_run)
        return response

    async def update_extension(
        self, caller: Caller, request: admin_service_pb2.UpdateExtensionRequest
    ) -> admin_service_pb2.UpdateExtensionResponse:
        guarded_by_lease = _check_extension(request)
        if (Role.WORKER if guarded_by_lease else Role.ADMIN) not in caller.roles:
            raise role_not_allowed("admins write with expected_revision, workers under their lease")
        value = parse_canonical(request.value, "value") if request.HasField("value") else None
        holder = holder_of(caller, request.lease) if guarded_by_lease else None
        expected = None if guarded_by_lease else request.expected_revision

        def command(record: TaskRecord, now_ms: int) -> Decision[Extension | None]:
            return update_extension(
                record, request.name, value, now_ms, expected_revision=expected, holder=holder
            )

        desk = self._parts.admission
        if desk.asks:
            record = visible(caller, await self._store.get(caller.key(request.task_id)))
            await desk.admit(Operation.EXTEND, caller, facts_of(record, request.name))
        decision = await self._store.update(caller.key(request.task_id), for_caller(caller, command))
        response = admin_service_pb2.UpdateExtensionResponse(status=status_message(decision.record))
        if decision.answer is not None:
            response.extension.CopyFrom(
                task_pb2.Extension(
                    name=decision.answer.name,
                    revision=decision.answer.revision,
                    value=decision.answer.value.encode(),
                )
            )
        return response

    async def _purgeable(
        self, keys: Sequence[TaskKey], ended_before_ms: int, response: admin_service_pb2.PurgeTasksResponse
    ) -> list[TaskKey]:
        """Those of these tasks that may be purged; the response says why the others stay."""
        now_ms = await self._store.now_ms()
        kept = []
        for key in keys:
            reason = _obstacle(await self._store.get(key), ended_before_ms, now_ms)
            if reason is None:
                kept.append(key)
            else:
                response.skipped.add(task_id=key.task_id, reason=reason)
        return kept

    async def _purge(
        self,
        caller: Caller,
        keys: Sequence[TaskKey],
        ended_before_ms: int,
        response: admin_service_pb2.PurgeTasksResponse,
        *,
        dry_run: bool,
    ) -> None:
        if dry_run:
            response.purged_task_ids.extend(key.task_id for key in keys)
            return
        purged_tasks = await self._store.purge(keys, ended_before_ms)
        if purged_tasks:
            _log.info("tasks_purged", caller=caller.id, tenant=caller.tenant_id, removed=len(purged_tasks))
        response.purged_task_ids.extend(purged.key.task_id for purged in purged_tasks)
        await remove_bytes(self._parts.blobs, purged_tasks)


def _obstacle(
    record: TaskRecord | None, ended_before_ms: int, now_ms: int
) -> admin_service_pb2.PurgeSkipReason.ValueType | None:
    if record is None:
        return admin_service_pb2.PURGE_SKIP_REASON_NOT_FOUND
    if record.live_lease(now_ms) is not None:
        return admin_service_pb2.PURGE_SKIP_REASON_LEASED
    if not record.terminal:
        return admin_service_pb2.PURGE_SKIP_REASON_NOT_TERMINAL
    if any(record.open_actions()):
        return admin_service_pb2.PURGE_SKIP_REASON_OUTCOME_OPEN
    if record.updated_at_ms >= ended_before_ms:
        return admin_service_pb2.PURGE_SKIP_REASON_TOO_YOUNG
    return None


def _check_extension(request: admin_service_pb2.UpdateExtensionRequest) -> bool:
    """Checks the request, and tells whether it is guarded by a lease."""
    checks = Checks()
    guard = request.WhichOneof("guard")
    if guard == "lease":
        checks.lease("lease", request.lease)
        if request.task_id not in {"", request.lease.task_id}:
            checks.fault("task_id", "must be the task of the lease")
    elif guard is None:
        checks.fault("guard", "must be expected_revision or lease")
    if guard != "lease" or request.task_id:
        checks.identifier("task_id", request.task_id)
    checks.raise_faults()
    if guard == "lease":
        request.task_id = request.lease.task_id
    return guard == "lease"


def _version() -> str:
    try:
        return version("sealwork")
    except PackageNotFoundError:
        return "0+unknown"
