"""Following the journal of a task."""

from durable_service.caller import Caller, visible
from durable_service.core.errors import DomainError, Reason
from durable_service.planes.convert import timestamp_of
from durable_service.planes.following import bookmark_seconds, drain_notice
from durable_service.planes.parts import Parts
from durable_service.planes.record_calls import EVENTS_AT_ONCE, check_types, event_message
from durable_service.planes.task_calls import PAGE_BYTES
from durable_service.planes.validation import Checks
from durable_service.planes.watches import Watch
from durable_service.store.base import EventPage
from sealwork.durable.v1 import record_service_pb2


class EventWatch:
    """One WatchEvents call."""

    def __init__(
        self, parts: Parts, caller: Caller, request: record_service_pb2.WatchEventsRequest, watch: Watch
    ) -> None:
        checks = Checks()
        checks.identifier("task_id", request.task_id)
        check_types(checks, request.types)
        checks.raise_faults()
        self._interval = bookmark_seconds(
            request.bookmark_interval if request.HasField("bookmark_interval") else None
        )
        self._parts = parts
        self._store = parts.store
        self._caller = caller
        self._key = caller.key(request.task_id)
        self._types = frozenset(request.types)
        self._follow = request.follow
        self._after = request.after_sequence
        self._watch = watch

    async def run(self) -> None:
        """Tells of events until the task has ended, or the call.

        Raises:
            DomainError: TASK_NOT_FOUND, EVENT_GAP, INVALID_INTEGER.
            ServiceError: what ends the watch.
        """
        stop = self._parts.news.of_task(self._key, self._watch.wake)
        try:
            visible(self._caller, await self._store.get(self._key))
            if not await self._tell():
                await self._bookmark()
            while not await self._is_over():
                news = await self._watch.wait(self._interval)
                if self._watch.draining:
                    await self._send(drain_notice=drain_notice())
                    self._watch.draining = False
                if not await self._tell() and not news:
                    await self._bookmark()
        finally:
            stop()

    async def _is_over(self) -> bool:
        if not self._follow:
            return True
        record = visible(self._caller, await self._store.get(self._key))
        return record.terminal and record.last_sequence <= self._after

    async def _tell(self) -> bool:
        """Sends the events after the position; whether anything was sent."""
        sent = False
        while True:
            page = await self._page()
            if page is None:
                sent = True
                continue
            sent = await self._send_page(page) or sent
            self._watch.raise_end()
            if len(page.events) < EVENTS_AT_ONCE:
                return sent

    async def _page(self) -> EventPage | None:
        """The next events; None when some were trimmed, which was told."""
        try:
            return await self._store.events(self._key, self._after, EVENTS_AT_ONCE)
        except DomainError as error:
            if error.reason is not Reason.EVENT_GAP:
                raise
            earliest, latest = int(error.details["earliest"]), int(error.details["latest"])
            if self._after > latest:
                raise
            gap = record_service_pb2.EventGap(
                after_sequence=self._after, earliest_sequence=earliest, latest_sequence=latest
            )
            await self._send(gap=gap)
            self._after = earliest - 1
            return None

    async def _send_page(self, page: EventPage) -> bool:
        batch = record_service_pb2.EventBatch()
        sent, room = False, PAGE_BYTES
        for event in page.events:
            if not self._types or event.type in self._types:
                message = event_message(event)
                room -= message.ByteSize()
                if room < 0 and batch.events:
                    await self._send(batch=batch)
                    batch, room = record_service_pb2.EventBatch(), PAGE_BYTES
                    sent = True
                batch.events.append(message)
            self._after = event.sequence
        if batch.events:
            await self._send(batch=batch)
        return sent or bool(batch.events)

    async def _bookmark(self) -> None:
        server_time = timestamp_of(self._parts.clock.now_ms())
        await self._send(
            bookmark=record_service_pb2.EventBookmark(sequence=self._after, server_time=server_time)
        )

    async def _send(self, **frame: object) -> None:
        await self._watch.send(record_service_pb2.WatchEventsResponse(**frame))  # type: ignore[arg-type]
