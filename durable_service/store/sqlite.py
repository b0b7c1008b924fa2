"""Tasks in one SQLite file: durable, for one process, with nothing else to install."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeVar

from durable_service.core.admission import Created, TaskCreation, create
from durable_service.core.definition import TaskKey
from durable_service.core.model import Holder, TaskEvent, TaskRecord
from durable_service.core.retention import purgeable, tombstone
from durable_service.core.states import TERMINAL, TaskState
from durable_service.core.step import Decision
from durable_service.store import sqlite_queries as queries
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
from durable_service.store.clock import StoreClock, steady_ms, wall_ms
from durable_service.store.listeners import Listeners
from durable_service.store.sqlite_file import (
    FileLock,
    connect_reader,
    connect_writer,
    make_private,
    synchronise_folder,
    translated,
)
from durable_service.store.sqlite_rows import meta, stored_task
from durable_service.store.sqlite_schema import migrate
from durable_service.store.sqlite_transaction import Transaction
from durable_service.store.sqlite_writer import GroupWriter
from durable_service.store.updates import appending, decided

Result = TypeVar("Result")


class SqliteTaskStore:
    """The embedded store. What it has answered is on the disk."""

    def __init__(
        self,
        database: Path,
        *,
        limits: StoreLimits | None = None,
        wall: Callable[[], int] = wall_ms,
        steady: Callable[[], int] = steady_ms,
    ) -> None:
        """Open the file, make it when it is not there, and bring it to this version.

        Raises:
            StoreUnavailable: the file is in use by another process, is no store, is damaged, is of a newer
                version, or cannot be written to.
        """
        self._limits = limits or StoreLimits()
        self._listeners = Listeners()
        with ExitStack() as opened, translated():
            self._lock = FileLock(database)
            opened.callback(self._lock.release)
            make_private(database)
            self._writing = opened.enter_context(closing(connect_writer(database)))
            migrate(self._writing)
            self._reading = opened.enter_context(closing(connect_reader(database)))
            floor_ms = meta(self._writing, "last_now_ms")
            self._incarnation = f"{meta(self._writing, 'incarnation'):x}"
            synchronise_folder(database)
            # Opened in full: from here on it is `close` that ends them.
            opened.pop_all()
        self._clock = StoreClock(wall, steady, floor_ms)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="task-store-reader")
        self._writer = GroupWriter(self._writing, self._clock, self._limits, self._listeners.tell)
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(durable=True, durable_outbox=True)

    @property
    def incarnation(self) -> str:
        return self._incarnation

    async def now_ms(self) -> int:
        return self._clock.now_ms()

    async def create(self, creation: TaskCreation) -> Decision[Created]:
        key = creation.definition.key

        def work(transaction: Transaction) -> Decision[Created]:
            stored = transaction.load(key)
            existing = transaction.tombstone(key) if stored is None else stored.record
            decision = create(existing, creation, transaction.now_ms, self._limits.task_bytes)
            if decision.written:
                transaction.insert(decision.record, decision.events)
            return decision

        return await self._writer.do(work)

    async def get(self, key: TaskKey) -> TaskRecord | None:
        known = self._writer.known(key)
        if known is not None:
            return known.record
        row = await self._read(lambda connection: stored_task(connection, key))
        return None if row is None else row[1]

    async def update(
        self, key: TaskKey, mutate: Mutation[Answer], guard: Holder | None = None
    ) -> Decision[Answer]:
        return await self._writer.do(lambda transaction: _update(transaction, key, mutate, guard))

    async def append(self, key: TaskKey, holder: Holder, draft: EventDraft) -> Decision[TaskEvent]:
        def work(transaction: Transaction) -> Decision[TaskEvent]:
            stored = transaction.load(key)
            known = None if stored is None else transaction.event(stored, draft.event_id)
            return _update(transaction, key, appending(holder, draft, known), None)

        return await self._writer.do(work)

    async def events(self, key: TaskKey, after: int, limit: int) -> EventPage:
        return await self._read(lambda connection: queries.event_page(connection, key, after, limit))

    async def trim_events(self, limit: int) -> int:
        if self._limits.event_age_ms is None:
            return 0
        return await self._writer.do(lambda transaction: transaction.trim_events(limit))

    async def claimable(self, query: ClaimableQuery) -> Sequence[Candidate]:
        now_ms = self._clock.now_ms()
        return await self._read(lambda connection: queries.claimable(connection, query, now_ms))

    async def next_claimable_ms(self, query: ClaimableQuery) -> int | None:
        return await self._read(lambda connection: queries.next_claimable_ms(connection, query))

    async def due(self, limit: int) -> Sequence[TaskKey]:
        now_ms = self._clock.now_ms()
        return await self._read(lambda connection: queries.due(connection, now_ms, limit))

    async def next_due_ms(self) -> int | None:
        return await self._read(queries.next_due_ms)

    async def list_tasks(self, query: TaskQuery, after: PageMark | None, limit: int) -> Sequence[TaskRecord]:
        return await self._read(lambda connection: queries.list_tasks(connection, query, after, limit))

    async def pending_approvals(
        self, tenant_id: str, actor_id: str | None, after: ApprovalMark | None, limit: int
    ) -> Sequence[PendingApproval]:
        now_ms = self._clock.now_ms()
        return await self._read(
            lambda connection: queries.pending_approvals(
                connection, tenant_id, actor_id, after, limit, now_ms
            )
        )

    async def task_of_approval(self, tenant_id: str, approval_id: str) -> TaskRecord | None:
        return await self._read(
            lambda connection: queries.task_of_approval(connection, tenant_id, approval_id)
        )

    async def unknown_actions(
        self, tenant_id: str, after: UnknownMark | None, limit: int
    ) -> Sequence[UnknownAction]:
        return await self._read(
            lambda connection: queries.unknown_actions(connection, tenant_id, after, limit)
        )

    async def held(self, tenant_id: str, worker_id: str) -> Sequence[TaskRecord]:
        now_ms = self._clock.now_ms()
        return await self._read(lambda connection: queries.held(connection, tenant_id, worker_id, now_ms))

    async def granted(self, tenant_id: str, worker_id: str, claim_id: str) -> TaskKey | None:
        now_ms = self._clock.now_ms()
        return await self._read(
            lambda connection: queries.granted(connection, tenant_id, worker_id, claim_id, now_ms)
        )

    async def changes(self, tenant_id: str, after: int, limit: int) -> ChangePage:
        return await self._read(lambda connection: queries.changes(connection, tenant_id, after, limit))

    async def purgeable(
        self,
        tenant_id: str,
        ended_before_ms: int,
        limit: int,
        states: frozenset[TaskState] = TERMINAL,
    ) -> Sequence[TaskKey]:
        return await self._read(
            lambda connection: queries.purgeable_keys(connection, tenant_id, ended_before_ms, limit, states)
        )

    async def purge(self, keys: Sequence[TaskKey], ended_before_ms: int) -> Sequence[Purged]:
        return await self._writer.do(lambda transaction: _purge(transaction, keys, ended_before_ms))

    async def referenced(self, blob_keys: Sequence[str]) -> frozenset[str]:
        return await self._read(lambda connection: queries.referenced(connection, blob_keys))

    async def counts(self) -> Sequence[StateCount]:
        return await self._read(queries.counts)

    async def backlog(self, tenant_id: str) -> Backlog:
        now_ms = self._clock.now_ms()
        return await self._read(lambda connection: queries.backlog(connection, tenant_id, now_ms))

    async def use_nonce(self, caller: str, nonce: str, ttl_ms: int) -> bool:
        return await self._writer.do(lambda transaction: transaction.use_nonce(caller, nonce, ttl_ms))

    async def check_writes(self) -> None:
        if self._writer.failing:
            await self._writer.do(lambda transaction: transaction.note_progress())

    def listen(self, listener: Listener) -> Callable[[], None]:
        return self._listeners.add(listener)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._writer.close()
        await asyncio.to_thread(self._reader.shutdown)
        self._reading.close()
        self._writing.close()
        self._lock.release()

    async def _read(self, question: Callable[[sqlite3.Connection], Result]) -> Result:
        if self._closed:
            raise StoreUnavailable(StoreFault.CLOSED, "the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._asked, question)

    def _asked(self, question: Callable[[sqlite3.Connection], Result]) -> Result:
        with translated():
            # One snapshot for all statements of a question.
            self._reading.execute("BEGIN")
            try:
                return question(self._reading)
            finally:
                self._reading.execute("ROLLBACK")


def _update(
    transaction: Transaction, key: TaskKey, mutate: Mutation[Answer], guard: Holder | None
) -> Decision[Answer]:
    stored = transaction.load(key)
    decision = decided(None if stored is None else stored.record, mutate, guard, transaction.now_ms)
    if stored is not None and decision.written:
        transaction.replace(stored, decision.record, decision.events)
    return decision


def _purge(transaction: Transaction, keys: Sequence[TaskKey], ended_before_ms: int) -> list[Purged]:
    purged = []
    for key in keys:
        stored = transaction.load(key)
        # Whether it may go is decided here: the keys were chosen before this transaction.
        if stored is not None and purgeable(stored.record, ended_before_ms):
            transaction.bury(stored, tombstone(stored.record, transaction.now_ms))
            artifacts = stored.record.artifacts.values()
            purged.append(Purged(key, tuple(artifact.blob_key for artifact in artifacts)))
    return purged
