"""Following tasks: the latest standing of each, from a position that survives the stream."""

from typing import Final

from durable_service.caller import Caller
from durable_service.core.model import TaskRecord
from durable_service.planes.convert import timestamp_of
from durable_service.planes.following import bookmark_seconds, drain_notice
from durable_service.planes.parts import Parts
from durable_service.planes.refusals import page_token_invalid, resume_token_expired
from durable_service.planes.task_calls import watch_tokens
from durable_service.planes.task_filters import selection_of
from durable_service.planes.task_messages import task_message
from durable_service.planes.watches import Watch
from durable_service.store.base import TaskChange
from sealwork.durable.v1 import task_pb2, task_service_pb2

_AT_ONCE: Final = 200
# More tasks that left the filter than this are told of whether they were in it or not.
_MOST_LEFT: Final = 10_000


class TaskWatch:
    """One WatchTasks call."""

    def __init__(
        self, parts: Parts, caller: Caller, request: task_service_pb2.WatchTasksRequest, watch: Watch
    ) -> None:
        self._store = parts.store
        self._parts = parts
        self._caller = caller
        self._watch = watch
        self._interval = bookmark_seconds(
            request.bookmark_interval if request.HasField("bookmark_interval") else None
        )
        self._selection = selection_of(caller, request.filter)
        self._lasting = self._selection.lasting()
        self._tokens = watch_tokens(caller, request.filter)
        self._token = request.resume_token
        self._left: set[str] = set()
        self._left_overflow = False
        self._position = 0

    async def run(self) -> None:
        """Tells of changes until the call ends.

        Raises:
            ServiceError: PAGE_TOKEN_INVALID, RESUME_TOKEN_EXPIRED, or what ends the watch.
        """
        stop = self._parts.news.of_tenant(self._caller.tenant_id, self._note)
        try:
            catch_up_to = await self._begin()
            told = await self._tell(catch_up_to)
            if not told:
                await self._bookmark()
            while True:
                news = await self._watch.wait(self._interval)
                if self._watch.draining:
                    await self._watch.send(self._frame(drain_notice=drain_notice()))
                    self._watch.draining = False
                if not await self._tell(0) and not news:
                    await self._bookmark()
        finally:
            stop()

    async def _begin(self) -> int:
        """Finds the position to begin at, and returns the one up to which changes were missed."""
        latest = (await self._store.changes(self._caller.tenant_id, 0, 0)).latest
        mark = self._tokens.mark(self._token, str, int)
        if mark is None:
            self._position = latest
            return 0
        if mark[0] != self._store.incarnation:
            raise resume_token_expired()
        self._position = int(mark[1])
        if not 0 <= self._position <= latest:
            raise page_token_invalid()
        return latest

    def _note(self, change: TaskChange) -> None:
        before, after = change.before, change.after
        if before is not None and after is not None and self._leaves(before, after):
            self._left.add(after.key.task_id)
            if len(self._left) > _MOST_LEFT:
                self._left.clear()
                self._left_overflow = True
        self._watch.wake()

    def _leaves(self, before: TaskRecord, after: TaskRecord) -> bool:
        now_ms = after.updated_at_ms
        return self._selection.takes(before, now_ms) and not self._selection.takes(after, now_ms)

    async def _tell(self, catch_up_to: int) -> bool:
        """Sends what has changed since the position; whether anything was sent."""
        sent = False
        while True:
            page = await self._store.changes(self._caller.tenant_id, self._position, _AT_ONCE)
            if not page.records:
                self._position = max(self._position, page.latest)
                self._left_overflow = False
                return sent
            now_ms = await self._store.now_ms()
            batch = [
                task_message(record, self._caller, task_pb2.TASK_VIEW_PUBLIC, now_ms)
                for position, record in page.records
                if self._is_told(record, now_ms, missed=position <= catch_up_to)
            ]
            self._position = page.records[-1][0]
            if batch:
                sent = True
                await self._watch.send(self._frame(batch=task_service_pb2.TaskBatch(tasks=batch)))
            self._watch.raise_end()

    def _is_told(self, record: TaskRecord, now_ms: int, *, missed: bool) -> bool:
        left = record.key.task_id in self._left
        self._left.discard(record.key.task_id)
        if self._selection.takes(record, now_ms):
            return True
        # It may have been one of them at the time that was missed.
        return (left or missed or self._left_overflow) and self._lasting.takes(record, now_ms)

    async def _bookmark(self) -> None:
        server_time = timestamp_of(self._parts.clock.now_ms())
        await self._watch.send(self._frame(bookmark=task_service_pb2.TaskBookmark(server_time=server_time)))

    def _frame(self, **frame: object) -> task_service_pb2.WatchTasksResponse:
        token = self._tokens.token(self._store.incarnation, self._position)
        return task_service_pb2.WatchTasksResponse(resume_token=token, **frame)  # type: ignore[arg-type]
