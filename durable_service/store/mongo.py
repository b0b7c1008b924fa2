"""Tasks in MongoDB: durable, and shared by any number of processes.

Each task is one document, compared and set. Time is the server's. What is confirmed is in the journals of
most members of the replica set, and everything is read from the primary.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from durable_service.core.admission import Created, TaskCreation, create
from durable_service.core.definition import TaskKey
from durable_service.core.model import Holder, TaskEvent, TaskRecord
from durable_service.core.states import TERMINAL, TaskState
from durable_service.core.step import Decision
from durable_service.mongo_connection import MongoFailure, connect, database_of
from durable_service.store import mongo_queries as queries
from durable_service.store.base import (
    Answer,
    ApprovalMark,
    Backlog,
    Candidate,
    Capabilities,
    ChangePage,
    ClaimableQuery,
    EventDraft,
    EventPage,
    Listener,
    Mutation,
    PageMark,
    PendingApproval,
    Purged,
    StateCount,
    StoreFault,
    StoreLimits,
    StoreUnavailable,
    TaskQuery,
    UnknownAction,
    UnknownMark,
)
from durable_service.store.change_feed import ChangeFeed, FeedPage
from durable_service.store.listeners import Listeners
from durable_service.store.mongo_clock import ServerClock
from durable_service.store.mongo_pages import pending_page, unknown_page
from durable_service.store.mongo_positions import Positions
from durable_service.store.mongo_schema import foreign_keys, initialize, note_adopted
from durable_service.store.mongo_tasks import NOW, MongoTasks, Reading, translated
from durable_service.store.mongo_wakeups import wake_on_changes
from durable_service.store.mongo_writer import MongoWriter
from durable_service.store.updates import appending, decided

Result = TypeVar("Result")
_CANCEL_SECONDS: Final = 0.2


class MongoTaskStore:
    """The store on MongoDB; `open` makes one."""

    def __init__(self, url: str, limits: StoreLimits | None = None) -> None:
        """Prepare a client; nothing is asked of the database yet.

        Raises:
            StoreUnavailable: the address is none, or names no database.
        """
        try:
            self._client = connect(url)
        except MongoFailure as failure:
            raise StoreUnavailable(StoreFault(failure.fault.value), failure.message) from None
        self._limits = limits or StoreLimits()
        self._collections = MongoTasks(database_of(self._client), ServerClock())
        self._listeners = Listeners()
        self._feed = ChangeFeed(self, self._listeners.tell)
        self._positions = Positions(self._collections)
        self._writer = MongoWriter(self._collections, self._positions, self._limits, self._feed.committed)
        self._incarnation = ""
        self._running: list[asyncio.Task[None]] = []
        self._closed = False

    @classmethod
    async def open(cls, url: str, limits: StoreLimits | None = None) -> "MongoTaskStore":
        """A store that is ready; the database is brought to this version.

        Raises:
            StoreUnavailable: it cannot be reached, refuses the credentials, or is of a newer version.
        """
        store = cls(url, limits)
        try:
            await store.initialize()
            await store._start()
        except BaseException:
            await store.close()
            raise
        return store

    async def initialize(self) -> None:
        """Brings the database to this version; doing it again changes nothing.

        Raises:
            StoreUnavailable: as `open`.
        """
        with translated():
            self._incarnation = await initialize(self._collections)
            async for document in self._collections.tasks.find({"sealwork.texts": {"$exists": True}}, {}):
                await self._writer.clear(document["_id"])
            foreign = await foreign_keys(self._collections)
        for key in foreign:
            await self._writer.adopt(key)
        with translated():
            await note_adopted(self._collections)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(durable=True, durable_outbox=True)

    @property
    def incarnation(self) -> str:
        return self._incarnation

    async def now_ms(self) -> int:
        with translated():
            return (await self._collections.instant()).ms

    async def create(self, creation: TaskCreation) -> Decision[Created]:
        async def decide(reading: Reading) -> Decision[Created]:
            existing = reading.tombstone if reading.stored is None else reading.stored.record
            return create(existing, creation, reading.instant.ms, self._limits.task_bytes)

        return await self._writer.change(creation.definition.key, decide)

    async def get(self, key: TaskKey) -> TaskRecord | None:
        stored = (await self._read(key)).stored
        return None if stored is None else stored.record

    async def update(
        self, key: TaskKey, mutate: Mutation[Answer], guard: Holder | None = None
    ) -> Decision[Answer]:
        async def decide(reading: Reading) -> Decision[Answer]:
            return _decided(reading, mutate, guard)

        return await self._writer.change(key, decide)

    async def append(self, key: TaskKey, holder: Holder, draft: EventDraft) -> Decision[TaskEvent]:
        async def decide(reading: Reading) -> Decision[TaskEvent]:
            known = await self._event(reading, draft.event_id)
            return _decided(reading, appending(holder, draft, known), None)

        return await self._writer.change(key, decide)

    async def events(self, key: TaskKey, after: int, limit: int) -> EventPage:
        reading = await self._read(key)
        with translated():
            return await queries.event_page(self._collections, reading, after, limit)

    async def trim_events(self, limit: int) -> int:
        age_ms = self._limits.event_age_ms
        if age_ms is None:
            return 0
        until_ms = await self.now_ms() - age_ms
        with translated():
            keys = await queries.with_events_until(self._collections, until_ms, limit)
        dropped = 0
        for key in keys:
            if dropped < limit:
                dropped += await self._writer.trim(key, limit - dropped)
        return dropped

    async def claimable(self, query: ClaimableQuery) -> Sequence[Candidate]:
        return await self._asked_now(lambda now_ms: queries.claimable(self._collections, query, now_ms))

    async def next_claimable_ms(self, query: ClaimableQuery) -> int | None:
        return await self._asked(queries.next_claimable_ms(self._collections, query))

    async def due(self, limit: int) -> Sequence[TaskKey]:
        return await self._asked_now(lambda now_ms: queries.due(self._collections, now_ms, limit))

    async def next_due_ms(self) -> int | None:
        return await self._asked(queries.next_due_ms(self._collections))

    async def list_tasks(self, query: TaskQuery, after: PageMark | None, limit: int) -> Sequence[TaskRecord]:
        return await self._asked(queries.list_tasks(self._collections, query, after, limit))

    async def pending_approvals(
        self, tenant_id: str, actor_id: str | None, after: ApprovalMark | None, limit: int
    ) -> Sequence[PendingApproval]:
        return await self._asked_now(
            lambda now_ms: pending_page(self._collections, tenant_id, actor_id, after, limit, now_ms)
        )

    async def task_of_approval(self, tenant_id: str, approval_id: str) -> TaskRecord | None:
        return await self._asked(queries.task_of_approval(self._collections, tenant_id, approval_id))

    async def unknown_actions(
        self, tenant_id: str, after: UnknownMark | None, limit: int
    ) -> Sequence[UnknownAction]:
        return await self._asked(unknown_page(self._collections, tenant_id, after, limit))

    async def held(self, tenant_id: str, worker_id: str) -> Sequence[TaskRecord]:
        return await self._asked_now(
            lambda now_ms: queries.held(self._collections, tenant_id, worker_id, now_ms)
        )

    async def granted(self, tenant_id: str, worker_id: str, claim_id: str) -> TaskKey | None:
        return await self._asked_now(
            lambda now_ms: queries.granted(self._collections, tenant_id, worker_id, claim_id, now_ms)
        )

    async def changes(self, tenant_id: str, after: int, limit: int) -> ChangePage:
        latest = await self._positions.settled()
        found = await self._asked(queries.changed(self._collections, tenant_id, after, latest, limit))
        return ChangePage(tuple(found), latest)

    async def feed_position(self) -> int:
        return await self._positions.settled()

    async def feed_page(self, after: int, limit: int) -> FeedPage:
        latest = await self._positions.settled()
        if latest <= after:
            return FeedPage((), after, more=False)
        found = await self._asked(queries.changed(self._collections, None, after, latest, limit))
        more = len(found) == limit
        records = tuple(record for _, record in found)
        return FeedPage(records, found[-1][0] if more else latest, more)

    async def purgeable(
        self,
        tenant_id: str,
        ended_before_ms: int,
        limit: int,
        states: frozenset[TaskState] = TERMINAL,
    ) -> Sequence[TaskKey]:
        return await self._asked(
            queries.purgeable_keys(self._collections, tenant_id, ended_before_ms, limit, states)
        )

    async def purge(self, keys: Sequence[TaskKey], ended_before_ms: int) -> Sequence[Purged]:
        purged = [await self._writer.purge(key, ended_before_ms) for key in keys]
        return [each for each in purged if each is not None]

    async def referenced(self, blob_keys: Sequence[str]) -> frozenset[str]:
        return await self._asked(queries.referenced(self._collections, blob_keys))

    async def counts(self) -> Sequence[StateCount]:
        return await self._asked(queries.counts(self._collections))

    async def backlog(self, tenant_id: str) -> Backlog:
        return await self._asked_now(lambda now_ms: queries.backlog(self._collections, tenant_id, now_ms))

    async def use_nonce(self, caller: str, nonce: str, ttl_ms: int) -> bool:
        with translated():
            return await _use_nonce(self._collections, caller, nonce, ttl_ms)

    def listen(self, listener: Listener) -> Callable[[], None]:
        return self._listeners.add(listener)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        pending = set(self._running)
        while pending:
            for task in pending:
                task.cancel()
            # The driver makes a broken connection of a cancellation at times: then it is said once more.
            _, pending = await asyncio.wait(pending, timeout=_CANCEL_SECONDS)
        await self._client.close()

    async def _start(self) -> None:
        await self._feed.begin()
        wakeups = wake_on_changes(self._collections, self._feed.wake)
        running = (self._positions.run(), self._feed.run(), wakeups)
        self._running = [asyncio.create_task(each) for each in running]

    async def _read(self, key: TaskKey) -> Reading:
        with translated():
            return await self._collections.read(key)

    async def _event(self, reading: Reading, event_id: str) -> TaskEvent | None:
        """The entry that the journal has under a caller's id."""
        stored = reading.stored
        if stored is None:
            return None
        known = [entry for entry in stored.journal if entry.event_id == event_id]
        with translated():
            return next(iter(await self._collections.events(stored.id, known)), None)

    async def _asked_now(self, question: Callable[[int], Awaitable[Result]]) -> Result:
        return await self._asked(question(await self.now_ms()))

    async def _asked(self, answer: Awaitable[Result]) -> Result:
        with translated():
            return await answer


def _decided(reading: Reading, mutate: Mutation[Answer], guard: Holder | None) -> Decision[Answer]:
    record = None if reading.stored is None else reading.stored.record
    return decided(record, mutate, guard, reading.instant.ms)


async def _use_nonce(collections: MongoTasks, caller: str, nonce: str, ttl_ms: int) -> bool:
    """One write, by the server's time. Who finds its own mark in the document was first."""
    mark = secrets.token_hex(8)
    taken = {"$gt": [{"$ifNull": ["$untilMs", 0]}, NOW]}
    change = {
        "mark": {"$cond": [taken, "$mark", mark]},
        "until": {"$cond": [taken, "$until", {"$add": ["$$NOW", ttl_ms]}]},
        "untilMs": {"$cond": [taken, "$untilMs", {"$add": [NOW, ttl_ms]}]},
    }
    while True:
        # Two that insert at once: the second finds the document of the first.
        with contextlib.suppress(DuplicateKeyError):
            found = await collections.nonces.find_one_and_update(
                # A text, which every server finds by its index; no caller's name has a line break.
                {"_id": f"{caller}\n{nonce}"},
                [{"$set": change}],
                upsert=True,
                return_document=ReturnDocument.AFTER,
            )
            return found is not None and bool(found["mark"] == mark)
