"""Tasks in the memory of one process: for tests and for trying things out. A restart loses everything."""

import heapq
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from durable_service.core.admission import Created, TaskCreation, create
from durable_service.core.approvals import approvable
from durable_service.core.availability import availability
from durable_service.core.definition import TaskKey
from durable_service.core.journal import check_cursor
from durable_service.core.lapses import due_at_ms
from durable_service.core.model import Holder, TaskEvent, TaskRecord, Tombstone
from durable_service.core.retention import purgeable, tombstone
from durable_service.core.states import TERMINAL, ActionState, TaskState
from durable_service.core.step import Decision
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
    TaskChange,
    TaskQuery,
    UnknownAction,
    UnknownMark,
)
from durable_service.store.clock import StoreClock
from durable_service.store.filters import in_query
from durable_service.store.listeners import Listeners
from durable_service.store.memory_journal import Journals
from durable_service.store.timetable import Timetable, WaitingTasks
from durable_service.store.updates import appending, decided, not_found


class MemoryTaskStore:
    """A store that is not durable, and says so. Its methods never wait, so each is one atomic step."""

    def __init__(self, clock: StoreClock | None = None, limits: StoreLimits | None = None) -> None:
        self._clock = clock or StoreClock()
        self._limits = limits or StoreLimits()
        self._records: dict[TaskKey, TaskRecord] = {}
        self._journals = Journals(self._limits)
        self._waiting = WaitingTasks()
        self._due = Timetable()
        # By tenant and holder, whether or not the lease is over.
        self._held: dict[tuple[str, str], dict[TaskKey, None]] = {}
        self._claims: dict[tuple[str, str, str], TaskKey] = {}
        self._tombstones: dict[TaskKey, Tombstone] = {}
        self._nonces: OrderedDict[tuple[str, str], int] = OrderedDict()
        # In the order of the latest change, which is the last in.
        self._positions: dict[TaskKey, int] = {}
        self._latest = 0
        self._incarnation = secrets.token_hex(8)
        self._listeners = Listeners()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(durable=False, durable_outbox=False)

    @property
    def incarnation(self) -> str:
        return self._incarnation

    async def now_ms(self) -> int:
        return self._clock.now_ms()

    async def create(self, creation: TaskCreation) -> Decision[Created]:
        key = creation.definition.key
        existing = self._records.get(key) or self._tombstones.get(key)
        decision = create(existing, creation, self._clock.now_ms(), self._limits.task_bytes)
        self._commit(None, decision)
        return decision

    async def get(self, key: TaskKey) -> TaskRecord | None:
        return self._records.get(key)

    async def update(
        self, key: TaskKey, mutate: Mutation[Answer], guard: Holder | None = None
    ) -> Decision[Answer]:
        record = self._records.get(key)
        decision = decided(record, mutate, guard, self._clock.now_ms())
        self._commit(record, decision)
        return decision

    async def append(self, key: TaskKey, holder: Holder, draft: EventDraft) -> Decision[TaskEvent]:
        known = next((event for event in self._journals.of(key) if event.event_id == draft.event_id), None)
        return await self.update(key, appending(holder, draft, known))

    async def events(self, key: TaskKey, after: int, limit: int) -> EventPage:
        record = self._records.get(key)
        if record is None:
            raise not_found()
        earliest = self._journals.earliest(key, record.last_sequence)
        check_cursor(after, earliest, record.last_sequence)
        page = [event for event in self._journals.of(key) if event.sequence > after][:limit]
        return EventPage(tuple(page), earliest, record.last_sequence)

    async def trim_events(self, limit: int) -> int:
        return self._journals.trim(self._clock.now_ms(), limit)

    async def claimable(self, query: ClaimableQuery) -> Sequence[Candidate]:
        ready = islice(self._waiting.until(query, self._clock.now_ms()), query.limit)
        return [Candidate(key, self._records[key].definition.driver) for _, key in ready]

    async def next_claimable_ms(self, query: ClaimableQuery) -> int | None:
        return next((at_ms for at_ms, _ in self._waiting.all(query)), None)

    async def due(self, limit: int) -> Sequence[TaskKey]:
        return [key for _, key in islice(self._due.until(self._clock.now_ms()), limit)]

    async def next_due_ms(self) -> int | None:
        return next((at_ms for at_ms, _ in self._due), None)

    async def list_tasks(self, query: TaskQuery, after: PageMark | None, limit: int) -> Sequence[TaskRecord]:
        found = (record for record in self._records.values() if in_query(record, query))
        if after is not None:
            mark = (after.created_at_ms, after.task_id)
            found = (record for record in found if _place(record) < mark)
        return heapq.nlargest(limit, found, key=_place)

    async def pending_approvals(
        self, tenant_id: str, actor_id: str | None, after: ApprovalMark | None, limit: int
    ) -> Sequence[PendingApproval]:
        mark = (-1, "") if after is None else (after.expires_at_ms, after.approval_id)
        found = (item for item in self._pending(tenant_id, actor_id) if _urgency(item) > mark)
        return heapq.nsmallest(limit, found, key=_urgency)

    async def task_of_approval(self, tenant_id: str, approval_id: str) -> TaskRecord | None:
        of_tenant = (record for record in self._records.values() if record.key.tenant_id == tenant_id)
        return next((record for record in of_tenant if approval_id in record.approvals), None)

    async def unknown_actions(
        self, tenant_id: str, after: UnknownMark | None, limit: int
    ) -> Sequence[UnknownAction]:
        mark = (-1, "", "") if after is None else (after.since_ms, after.task_id, after.action_id)
        found = (item for item in self._unknown(tenant_id) if _since(item) > mark)
        return heapq.nsmallest(limit, found, key=_since)

    async def held(self, tenant_id: str, worker_id: str) -> Sequence[TaskRecord]:
        now_ms = self._clock.now_ms()
        records = (self._records[key] for key in self._held.get((tenant_id, worker_id), ()))
        return [record for record in records if record.live_lease(now_ms) is not None]

    async def granted(self, tenant_id: str, worker_id: str, claim_id: str) -> TaskKey | None:
        known = self._claims.get((tenant_id, worker_id, claim_id))
        if known is not None:
            return known
        held = await self.held(tenant_id, worker_id)
        by_claim = (record.key for record in held if record.lease and record.lease.claim_id == claim_id)
        return next(by_claim, None)

    async def changes(self, tenant_id: str, after: int, limit: int) -> ChangePage:
        newer = (
            (position, self._records[key])
            for key, position in self._positions.items()
            if position > after and key.tenant_id == tenant_id
        )
        return ChangePage(tuple(islice(newer, limit)), self._latest)

    async def purgeable(
        self,
        tenant_id: str,
        ended_before_ms: int,
        limit: int,
        states: frozenset[TaskState] = TERMINAL,
    ) -> Sequence[TaskKey]:
        old = (
            record
            for record in self._records.values()
            if record.key.tenant_id == tenant_id and record.state in states
            if purgeable(record, ended_before_ms)
        )
        return [record.key for record in heapq.nsmallest(limit, old, key=lambda item: item.updated_at_ms)]

    async def purge(self, keys: Sequence[TaskKey], ended_before_ms: int) -> Sequence[Purged]:
        known = (self._records.get(key) for key in keys)
        return [
            self._bury(record)
            for record in known
            if record is not None and purgeable(record, ended_before_ms)
        ]

    async def referenced(self, blob_keys: Sequence[str]) -> frozenset[str]:
        asked = frozenset(blob_keys)
        kept = (item.blob_key for record in self._records.values() for item in record.artifacts.values())
        return asked.intersection(kept)

    async def counts(self) -> Sequence[StateCount]:
        counter = Counter((record.key.tenant_id, record.state) for record in self._records.values())
        return [StateCount(tenant, state, count) for (tenant, state), count in sorted(counter.items())]

    async def backlog(self, tenant_id: str) -> Backlog:
        now_ms = self._clock.now_ms()
        ready = [at_ms for at_ms, _ in self._waiting.until(ClaimableQuery(tenant_id), now_ms)]
        unknown = [item.action.updated_at_ms for item in self._unknown(tenant_id)]
        pending = [item.approval.created_at_ms for item in self._pending(tenant_id, None)]
        leased = sum(
            record.live_lease(now_ms) is not None
            for record in self._records.values()
            if record.key.tenant_id == tenant_id
        )
        return Backlog(
            len(ready),
            min(ready, default=None),
            leased,
            len(unknown),
            min(unknown, default=None),
            len(pending),
            min(pending, default=None),
        )

    async def use_nonce(self, caller: str, nonce: str, ttl_ms: int) -> bool:
        now_ms = self._clock.now_ms()
        # Oldest first, so the expired ones stand in front.
        while self._nonces and next(iter(self._nonces.values())) <= now_ms:
            self._nonces.popitem(last=False)
        if self._nonces.get((caller, nonce), 0) > now_ms:
            return False
        self._nonces.pop((caller, nonce), None)
        self._nonces[caller, nonce] = now_ms + ttl_ms
        return True

    def listen(self, listener: Listener) -> Callable[[], None]:
        return self._listeners.add(listener)

    async def close(self) -> None:
        """Nothing is held open."""

    def _commit(self, before: TaskRecord | None, decision: Decision[Answer]) -> None:
        if not decision.written:
            return
        record = decision.record
        if decision.events:
            self._journals.add(record.key, decision.events, self._clock.now_ms())
        self._records[record.key] = record
        self._index(before, record)
        if before is None or before.revision != record.revision:
            self._latest += 1
            self._positions.pop(record.key, None)
            self._positions[record.key] = self._latest
        self._listeners.tell([TaskChange(before, record, decision.events)])

    def _index(self, before: TaskRecord | None, record: TaskRecord) -> None:
        self._waiting.put(record.key, record.definition.driver, availability(record))
        self._due.put(record.key, due_at_ms(record))
        for attempt in record.attempts[0 if before is None else len(before.attempts) :]:
            self._claims[record.key.tenant_id, attempt.worker_id, attempt.id] = record.key
        old, new = None if before is None else before.lease, record.lease
        if old is not None and (new is None or new.worker_id != old.worker_id):
            place = record.key.tenant_id, old.worker_id
            self._held[place].pop(record.key)
            if not self._held[place]:
                del self._held[place]
        if new is not None:
            self._held.setdefault((record.key.tenant_id, new.worker_id), {})[record.key] = None

    def _pending(self, tenant_id: str, actor_id: str | None) -> Iterable[PendingApproval]:
        now_ms = self._clock.now_ms()
        for record in self._records.values():
            if record.key.tenant_id != tenant_id or not approvable(record):
                continue
            for approval in record.pending_approvals(now_ms):
                if actor_id in {None, approval.actor_id}:
                    yield PendingApproval(record.key, approval, record.actions[approval.action_id])

    def _unknown(self, tenant_id: str) -> Iterable[UnknownAction]:
        for record in self._records.values():
            if record.key.tenant_id == tenant_id:
                for action in record.actions.values():
                    if action.state is ActionState.UNKNOWN:
                        yield UnknownAction(record, action)

    def _bury(self, record: TaskRecord) -> Purged:
        key = record.key
        self._tombstones[key] = tombstone(record, self._clock.now_ms())
        del self._records[key], self._positions[key]
        self._journals.forget(key)
        self._waiting.put(key, record.definition.driver, None)
        self._due.put(key, None)
        for attempt in record.attempts:
            place = key.tenant_id, attempt.worker_id, attempt.id
            if self._claims.get(place) == key:
                del self._claims[place]
        self._listeners.tell([TaskChange(record, None)])
        return Purged(key, tuple(item.blob_key for item in record.artifacts.values()))


def _place(record: TaskRecord) -> tuple[int, str]:
    return record.created_at_ms, record.key.task_id


def _urgency(item: PendingApproval) -> tuple[int, str]:
    return item.approval.expires_at_ms, item.approval.id


def _since(item: UnknownAction) -> tuple[int, str, str]:
    return item.action.updated_at_ms, item.record.key.task_id, item.action.id
