"""Tasks in a PostgreSQL database: durable, and shared by any number of processes."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Self, TypeVar

import psycopg

from durable_service.core.admission import Created, TaskCreation, create
from durable_service.core.definition import TaskKey
from durable_service.core.errors import DomainError, Reason
from durable_service.core.journal import check_cursor
from durable_service.core.model import Holder, TaskEvent, TaskRecord
from durable_service.core.retention import purgeable, tombstone
from durable_service.core.states import TERMINAL, TaskState
from durable_service.core.step import Decision
from durable_service.postgres.connections import CONNECTIONS, Connections, Row, connect, connection_text
from durable_service.postgres.faults import unavailable
from durable_service.store import postgres_queries as queries
from durable_service.store import postgres_writes as writes
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
    StoreLimits,
    StoreUnavailable,
    TaskChange,
    TaskQuery,
    UnknownAction,
    UnknownMark,
)
from durable_service.store.change_feed import ChangeFeed, FeedPage
from durable_service.store.listeners import Listeners
from durable_service.store.postgres_contention import TRIES, Contention
from durable_service.store.postgres_database import NOTE_MS, PostgresDatabase
from durable_service.store.postgres_migration import SchemaStanding, incarnation_of, migrate
from durable_service.store.postgres_news import Announcer, NewsListener, PostgresChanges
from durable_service.store.postgres_rows import GET, Loaded, record_of
from durable_service.store.postgres_schema import STEPS, SchemaStep
from durable_service.store.postgres_statement import Write
from durable_service.store.record_document import decode_event, decode_lease
from durable_service.store.turns import Turns
from durable_service.store.updates import appending, decided, not_found

Result = TypeVar("Result")
Decide = Callable[[Loaded], tuple[Decision[Answer], Write | None]]

NAME: Final = "durable-service"
_CANCEL_AGAIN_SECONDS: Final = 0.2
_FORGET_NONCES_EVERY: Final = 15
# How long a look at the changes waits for transactions elsewhere that are older than the newest change.
_HORIZON_WAITS_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.3)


class PostgresTaskStore:
    """The shared store. What it has answered is as safe as the server's settings make it."""

    def __init__(self, text: str, incarnation: str, limits: StoreLimits, connections: Connections) -> None:
        """Take parts that are ready; `open` makes them."""
        self._limits = limits
        self._incarnation = incarnation
        self._database = PostgresDatabase(connections)
        self._changes = PostgresChanges(self._database)
        self._listeners = Listeners()
        self._feed = ChangeFeed(self, self._listeners.tell)
        self._announcer = Announcer(self._database, self._changes)
        self._news = NewsListener(text, self._changes, self._feed.wake)
        connections.on_distrust = self._news.distrust
        self._turns = Turns()
        self._contention = Contention()
        self._running: set[asyncio.Task[Any]] = set()
        self._background: list[asyncio.Task[None]] = []

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        limits: StoreLimits | None = None,
        size: int = CONNECTIONS,
        steps: Sequence[SchemaStep] = STEPS,
    ) -> Self:
        """Connects, and brings the schema to this version where it is behind.

        Args:
            size: connections at most, beside one that listens.

        Raises:
            DatabaseUnavailable: the database cannot be had; the code of its answer tells why.
            StoreUnavailable: its schema cannot be worked with.
        """
        try:
            text = connection_text(url, NAME)
            async with await connect(text) as connection:
                await migrate(connection, steps)
                incarnation = await incarnation_of(connection)
        except (psycopg.Error, OSError) as error:
            raise unavailable(error) from None
        connections = Connections(text, size)
        await connections.open()
        store = cls(text, incarnation, limits or StoreLimits(), connections)
        try:
            await store._feed.begin()
        except BaseException:
            await store.close()
            raise
        store._begin()
        return store

    def _begin(self) -> None:
        works = (self._feed.run(), self._announcer.run(), self._news.run(), self._keep())
        self._background = [asyncio.create_task(work) for work in works]

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(durable=True, durable_outbox=True)

    @property
    def incarnation(self) -> str:
        return self._incarnation

    async def now_ms(self) -> int:
        return await self._database.now_ms()

    async def create(self, creation: TaskCreation) -> Decision[Created]:
        def decide(loaded: Loaded) -> tuple[Decision[Created], Write | None]:
            existing = loaded.record or loaded.tombstone
            decision = create(existing, creation, loaded.now_ms, self._limits.task_bytes)
            if not decision.written:
                return decision, None
            record, events = decision.record, decision.events
            return decision, writes.insertion(record, events, self._changes.writer, self._limits)

        return await self._finish(self._change(creation.definition.key, decide))

    async def get(self, key: TaskKey) -> TaskRecord | None:
        return _one(await self._database.ask(GET, {"tenant_id": key.tenant_id, "task_id": key.task_id}))

    async def update(
        self, key: TaskKey, mutate: Mutation[Answer], guard: Holder | None = None
    ) -> Decision[Answer]:
        return await self._finish(self._change(key, lambda loaded: self._decide(loaded, mutate, guard)))

    async def append(self, key: TaskKey, holder: Holder, draft: EventDraft) -> Decision[TaskEvent]:
        def decide(loaded: Loaded) -> tuple[Decision[TaskEvent], Write | None]:
            return self._decide(loaded, appending(holder, draft, loaded.event), None)

        return await self._finish(self._change(key, decide, draft.event_id))

    async def events(self, key: TaskKey, after: int, limit: int) -> EventPage:
        values = {"tenant_id": key.tenant_id, "task_id": key.task_id, "after": after, "limit": limit}
        rows = await self._database.ask(queries.EVENTS, values)
        if not rows:
            raise not_found()
        latest, first, bodies = rows[0]
        earliest = latest + 1 if first is None else first
        check_cursor(after, earliest, latest)
        return EventPage(tuple(map(decode_event, bodies)), earliest, latest)

    async def trim_events(self, limit: int) -> int:
        if self._limits.event_age_ms is None:
            return 0
        values = {"age_ms": self._limits.event_age_ms, "limit": limit}
        return len(await self._database.ask(queries.TRIM_EVENTS, values))

    async def claimable(self, query: ClaimableQuery) -> Sequence[Candidate]:
        rows = await self._database.ask(*queries.claimable(query))
        return [queries.candidate(query.tenant_id, row) for row in rows]

    async def next_claimable_ms(self, query: ClaimableQuery) -> int | None:
        rows = await self._database.ask(*queries.next_claimable(query))
        return int(rows[0][0]) if rows else None

    async def due(self, limit: int) -> Sequence[TaskKey]:
        rows = await self._database.ask(queries.DUE, {"limit": self._contention.widened(limit)})
        return self._contention.chosen([TaskKey(*row) for row in rows], limit)

    async def next_due_ms(self) -> int | None:
        ((at_ms,),) = await self._database.ask(queries.NEXT_DUE)
        return None if at_ms is None else int(at_ms)

    async def list_tasks(self, query: TaskQuery, after: PageMark | None, limit: int) -> Sequence[TaskRecord]:
        return [record_of(row) for row in await self._database.ask(*queries.list_tasks(query, after, limit))]

    async def pending_approvals(
        self, tenant_id: str, actor_id: str | None, after: ApprovalMark | None, limit: int
    ) -> Sequence[PendingApproval]:
        rows = await self._database.ask(*queries.pending_approvals(tenant_id, actor_id, after, limit))
        found = [(record_of(documents), approval_id) for approval_id, *documents in rows]
        approvals = [(record, record.approvals[approval_id]) for record, approval_id in found]
        return [
            PendingApproval(record.key, approval, record.actions[approval.action_id])
            for record, approval in approvals
        ]

    async def task_of_approval(self, tenant_id: str, approval_id: str) -> TaskRecord | None:
        values = {"tenant_id": tenant_id, "approval_id": approval_id}
        return _one(await self._database.ask(queries.TASK_OF_APPROVAL, values))

    async def unknown_actions(
        self, tenant_id: str, after: UnknownMark | None, limit: int
    ) -> Sequence[UnknownAction]:
        rows = await self._database.ask(*queries.unknown_actions(tenant_id, after, limit))
        found = [(record_of(documents), action_id) for action_id, *documents in rows]
        return [UnknownAction(record, record.actions[action_id]) for record, action_id in found]

    async def held(self, tenant_id: str, worker_id: str) -> Sequence[TaskRecord]:
        values = {"tenant_id": tenant_id, "worker_id": worker_id}
        return [record_of(row) for row in await self._database.ask(queries.HELD, values)]

    async def granted(self, tenant_id: str, worker_id: str, claim_id: str) -> TaskKey | None:
        values = {"tenant_id": tenant_id, "worker_id": worker_id, "claim_id": claim_id}
        for task_id, lease in await self._database.ask(queries.GRANTED, values):
            if lease is None or decode_lease(lease).claim_id == claim_id:
                return TaskKey(tenant_id, task_id)
        return None

    async def changes(self, tenant_id: str, after: int, limit: int) -> ChangePage:
        page, held_back = await self._changed(tenant_id, after, limit)
        # Whoever was woken by a change would otherwise sleep over it.
        for wait_seconds in _HORIZON_WAITS_SECONDS:
            if page.records or not held_back or not limit:
                break
            await asyncio.sleep(wait_seconds)
            page, held_back = await self._changed(tenant_id, after, limit)
        return page

    async def _changed(self, tenant_id: str, after: int, limit: int) -> tuple[ChangePage, bool]:
        """What is below the horizon, and whether there is more above it."""
        values = {"tenant_id": tenant_id, "after": after, "limit": limit}
        rows = await self._database.ask(queries.CHANGES, values)
        found = [(int(row[1]), record_of(row[2:-1])) for row in rows if row[1] is not None]
        return ChangePage(tuple(found), max(after, int(rows[0][0]))), bool(rows[0][-1])

    async def purgeable(
        self,
        tenant_id: str,
        ended_before_ms: int,
        limit: int,
        states: frozenset[TaskState] = TERMINAL,
    ) -> Sequence[TaskKey]:
        wanted = sorted(state.value for state in states)
        values = {"tenant_id": tenant_id, "before_ms": ended_before_ms, "limit": limit, "states": wanted}
        return [TaskKey(*row) for row in await self._database.ask(queries.PURGEABLE, values)]

    async def purge(self, keys: Sequence[TaskKey], ended_before_ms: int) -> Sequence[Purged]:
        purged = [await self._finish(self._bury(key, ended_before_ms)) for key in keys]
        return [task for task in purged if task is not None]

    async def referenced(self, blob_keys: Sequence[str]) -> frozenset[str]:
        rows = await self._database.ask(queries.REFERENCED, {"keys": list(blob_keys)})
        return frozenset(key for (key,) in rows)

    async def counts(self) -> Sequence[StateCount]:
        rows = await self._database.ask(queries.COUNTS)
        return [StateCount(tenant, TaskState(state), tasks) for tenant, state, tasks in rows]

    async def backlog(self, tenant_id: str) -> Backlog:
        (row,) = await self._database.ask(queries.BACKLOG, {"tenant_id": tenant_id})
        return Backlog(*row)

    async def use_nonce(self, caller: str, nonce: str, ttl_ms: int) -> bool:
        values = {"caller": caller, "nonce": nonce, "ttl_ms": ttl_ms, "seen_ms": self._database.seen_ms}
        return await self._finish(self._database.write((queries.NONCE, values)))

    def listen(self, listener: Listener) -> Callable[[], None]:
        return self._listeners.add(listener)

    async def close(self) -> None:
        ending = set(self._background)
        while ending:
            for work in ending:
                work.cancel()
            # Again, if one has missed it: see `Connections.connection`.
            _, ending = await asyncio.wait(ending, timeout=_CANCEL_AGAIN_SECONDS)
        # What was begun is finished: nobody would know of it otherwise.
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._database.close()

    async def feed_position(self) -> int:
        """As `ChangeFeed` asks for it."""
        return await self._changes.feed_position()

    async def feed_page(self, after: int, limit: int) -> FeedPage:
        """As `ChangeFeed` asks for it."""
        return await self._changes.feed_page(after, limit)

    def _decide(
        self, loaded: Loaded, mutate: Mutation[Answer], guard: Holder | None
    ) -> tuple[Decision[Answer], Write | None]:
        decision = decided(loaded.record, mutate, guard, loaded.now_ms)
        if loaded.stored is None or not decision.written:
            return decision, None
        writer, limits = self._changes.writer, self._limits
        write = writes.replacement(loaded.stored, decision.record, decision.events, writer, limits)
        return decision, write if guard is None else writes.while_held(write, self._database.seen_ms)

    async def _change(
        self, key: TaskKey, decide: Decide[Answer], event_id: str | None = None
    ) -> Decision[Answer]:
        async with self._turns.of(key):
            for tries in range(TRIES):
                loaded = await self._database.load(key, event_id)
                decision, write = decide(loaded)
                if write is None:
                    return decision
                if await self._written(write):
                    self._tell(TaskChange(loaded.record, decision.record, decision.events))
                    return decision
                await self._contention.wait(tries)
        raise DomainError(Reason.CONTENTION, "other processes change the task all the time: try again")

    async def _bury(self, key: TaskKey, ended_before_ms: int) -> Purged | None:
        async with self._turns.of(key):
            for tries in range(TRIES):
                loaded = await self._database.load(key)
                stored = loaded.stored
                # Whether it may go is decided here: the keys were chosen long before.
                if stored is None or not purgeable(stored.record, ended_before_ms):
                    return None
                if await self._written(writes.burial(stored, tombstone(stored.record, loaded.now_ms))):
                    self._feed.committed(TaskChange(stored.record, None))
                    artifacts = stored.record.artifacts.values()
                    return Purged(key, tuple(artifact.blob_key for artifact in artifacts))
                await self._contention.wait(tries)
        raise DomainError(Reason.CONTENTION, "other processes change the task all the time: try again")

    async def _written(self, write: Write) -> bool:
        try:
            return await self._database.write(write)
        except StoreUnavailable:
            self._changes.doubt()
            raise

    async def _finish(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs a write to its end even when its caller is gone: what is committed has to be told."""
        running = asyncio.create_task(work)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return await asyncio.shield(running)

    def _tell(self, change: TaskChange) -> None:
        self._feed.committed(change)
        before, after = change.before, change.after
        # A renewal has no position that others could find.
        if before is None or after is None or before.revision != after.revision:
            self._announcer.note()

    async def _keep(self) -> None:
        """Notes the time, and forgets what is over, until cancelled."""
        for turn in itertools.count(1):
            await asyncio.sleep(NOTE_MS / 1000)
            with contextlib.suppress(StoreUnavailable):
                await self._database.note_now()
                if turn % _FORGET_NONCES_EVERY == 0:
                    await self._database.ask(queries.FORGET_NONCES)


async def migrate_database(
    url: str, steps: Sequence[SchemaStep] = STEPS, *, finish: bool = False
) -> SchemaStanding:
    """Brings the schema of a database to this version without a store; raises as `PostgresTaskStore.open`."""
    try:
        async with await connect(connection_text(url, NAME)) as connection:
            return await migrate(connection, steps, finish=finish)
    except (psycopg.Error, OSError) as error:
        raise unavailable(error) from None


def _one(rows: Sequence[Row]) -> TaskRecord | None:
    return record_of(rows[0]) if rows else None
