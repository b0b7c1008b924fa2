"""The task store: a port for whole tasks, each change of one being a single atomic write.

A store owns the only clock that decides. A command is a pure function of a record and an instant; the store
may run it several times, and writes what it decides together with the journal, the queues and every index.
What was refused is a `DomainError`. Nothing is answered before it is as safe as the store can make it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeAlias, TypeVar

from durable_service.core.admission import Created, TaskCreation
from durable_service.core.availability import Queue
from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.definition import Driver, TaskKey
from durable_service.core.errors import DomainError, Reason
from durable_service.core.limits import EVENTS_RETAINED, TASK_BYTES
from durable_service.core.model import Action, Approval, Holder, TaskEvent, TaskRecord
from durable_service.core.states import TERMINAL, TaskState
from durable_service.core.step import Decision

Answer = TypeVar("Answer")
Mutation: TypeAlias = Callable[[TaskRecord, int], Decision[Answer]]


class StoreFault(StrEnum):
    """Why a store cannot do its work at present."""

    IN_USE = "in_use"
    DISK_FULL = "disk_full"
    READ_ONLY = "read_only"
    CORRUPT = "corrupt"
    NEWER_FORMAT = "newer_format"
    OLDER_FORMAT = "older_format"
    UNREACHABLE = "unreachable"
    CREDENTIALS = "credentials"
    NO_DATABASE = "no_database"
    CLOSED = "closed"
    FAILED = "failed"


class StoreUnavailable(DomainError):  # noqa: N818 - it names a state of the store
    """The store cannot be asked, or cannot write.

    Whether what was asked has happened is unknown when the connection broke; asking again with the same ids
    is safe. Leases are not lost by it.
    """

    def __init__(self, fault: StoreFault, message: str) -> None:
        super().__init__(Reason.STORE_UNAVAILABLE, message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store promises.

    Attributes:
        durable: what was answered survives the loss of every process.
        durable_outbox: extensions commit with the task and survive as well.
    """

    durable: bool
    durable_outbox: bool
    atomic_task_updates: bool = True
    compare_and_set: bool = True
    fencing: bool = True


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Bounds of a store's content.

    Journal entries beyond a bound are dropped, oldest first, with every write to the journal of their task.

    Attributes:
        event_bytes_per_task: of the data of the entries kept; the newest is kept whatever its size.
        event_age_ms: an entry of this age is dropped, the newest as well; `trim_events` finds those of
            journals to which nothing is written.
    """

    task_bytes: int = TASK_BYTES
    events_per_task: int = EVENTS_RETAINED
    event_bytes_per_task: int | None = None
    event_age_ms: int | None = None


@dataclass(frozen=True, slots=True)
class EventDraft:
    """A journal entry as a worker asks for it; the same event id is the same entry while it is kept."""

    event_id: str
    type: str
    data: CanonicalJson


@dataclass(frozen=True, slots=True)
class EventPage:
    """Entries after a cursor, oldest first.

    Attributes:
        earliest: of all that are kept; one above the latest when none is.
        latest: the newest ever written; 0 before the first.
    """

    events: tuple[TaskEvent, ...]
    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class ClaimableQuery:
    """What work is looked for.

    Attributes:
        drivers: None for every driver and for tasks without one.
    """

    tenant_id: str
    drivers: frozenset[Driver] | None = None
    queue: Queue = Queue.WORK
    limit: int = 10


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task that can be claimed; its record is read by whoever claims it."""

    key: TaskKey
    driver: Driver | None


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """Which tasks are listed; everything that is set has to hold.

    Attributes:
        states: any of these; empty for all.
        driver_version: 0 for every version.
        created_from_ms, updated_from_ms: at this instant or later.
        created_before_ms, updated_before_ms: before this instant.
        queue: tasks that wait there, now or by the passing of time alone.
    """

    tenant_id: str
    actor_id: str | None = None
    states: frozenset[TaskState] = frozenset()
    driver_id: str | None = None
    driver_version: int = 0
    session_id: str | None = None
    root_run_id: str | None = None
    created_from_ms: int | None = None
    created_before_ms: int | None = None
    updated_from_ms: int | None = None
    updated_before_ms: int | None = None
    queue: Queue | None = None


@dataclass(frozen=True, slots=True)
class PageMark:
    """The last task of a page. Lists are newest first, and tasks of one instant by descending id."""

    created_at_ms: int
    task_id: str


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """An approval that waits, with exactly what it is about."""

    key: TaskKey
    approval: Approval
    action: Action


@dataclass(frozen=True, slots=True)
class ApprovalMark:
    """The last approval of a page; those that expire first stand in front."""

    expires_at_ms: int
    approval_id: str


@dataclass(frozen=True, slots=True)
class UnknownAction:
    """An effect of which nobody knows whether it happened; since `action.updated_at_ms`."""

    record: TaskRecord
    action: Action


@dataclass(frozen=True, slots=True)
class UnknownMark:
    """The last unknown action of a page; those that have waited longest stand in front."""

    since_ms: int
    task_id: str
    action_id: str


@dataclass(frozen=True, slots=True)
class ChangePage:
    """Tasks in the order of their latest change; what a task was in between is skipped.

    Attributes:
        records: each with the position of its latest change.
        latest: up to here nothing is missing: whatever is changed from now on has a higher position. With no
            change to a task in between, at least the position of its latest one.
    """

    records: tuple[tuple[int, TaskRecord], ...]
    latest: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in a tenant; the instants are None when nothing does.

    Attributes:
        unknown_actions: effects whose outcome nobody knows.
        pending_approvals: those that can still be decided.
    """

    claimable: int
    oldest_claimable_ms: int | None
    live_leases: int
    unknown_actions: int
    oldest_unknown_ms: int | None
    pending_approvals: int
    oldest_pending_ms: int | None


@dataclass(frozen=True, slots=True)
class Purged:
    """A task that is gone, and the keys of its bytes, which may be deleted now."""

    key: TaskKey
    blob_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StateCount:
    """How many tasks of a tenant are in a state."""

    tenant_id: str
    state: TaskState
    tasks: int


@dataclass(frozen=True, slots=True)
class TaskChange:
    """One committed change.

    Attributes:
        before: None for a new task.
        after: None for a purged one.
        remote: another process on the same database committed it, perhaps several changes at once. Then
            `before` is what was told of the task last, without its large parts, or None when nothing was.
    """

    before: TaskRecord | None
    after: TaskRecord | None
    events: tuple[TaskEvent, ...] = field(default=())
    remote: bool = False


Listener = Callable[[TaskChange], None]


class TaskStore(Protocol):
    """Tasks, their journals and the queues in which they wait."""

    @property
    def capabilities(self) -> Capabilities:
        """What this store promises."""

    @property
    def incarnation(self) -> str:
        """Names this content: another one after it was lost, the same one over restarts that kept it."""

    async def now_ms(self) -> int:
        """The store's clock, epoch ms. It never goes back, not over a restart either if it is durable."""

    async def create(self, creation: TaskCreation) -> Decision[Created]:
        """Admits a task; the same definition under the same id is answered with the stored task.

        Raises:
            DomainError: as the command `create`.
        """

    async def get(self, key: TaskKey) -> TaskRecord | None:
        """The task as it was last written; every write that was answered before is in it."""

    async def update(
        self, key: TaskKey, mutate: Mutation[Answer], guard: Holder | None = None
    ) -> Decision[Answer]:
        """Runs a command on a task and writes what it decides.

        Args:
            mutate: pure, quick and without I/O; it may run more than once.
            guard: refused with LEASE_LOST unless this holder has the lease.

        Raises:
            DomainError: TASK_NOT_FOUND before anything else; what the command raises, and then nothing is
                written; INVARIANT or ILLEGAL_TRANSITION when the decision breaks what every update keeps;
                REQUEST_ID_REUSED, from a store that several processes share and that can tell, when another
                one has granted another task by the same claim meanwhile.
        """

    async def append(self, key: TaskKey, holder: Holder, draft: EventDraft) -> Decision[TaskEvent]:
        """Adds a journal entry once; raises as `update` and as the command `append_event`."""

    async def events(self, key: TaskKey, after: int, limit: int) -> EventPage:
        """Entries above a cursor.

        Raises:
            DomainError: TASK_NOT_FOUND; EVENT_GAP when the cursor is behind what is kept or ahead of what
                was written.
        """

    async def trim_events(self, limit: int) -> int:
        """Drops up to `limit` journal entries that are too old, the oldest first; how many there were.

        Nothing is told of it: readers find the gap.
        """

    async def claimable(self, query: ClaimableQuery) -> Sequence[Candidate]:
        """Tasks that can be claimed now, those that have waited longest first. It claims nothing."""

    async def next_claimable_ms(self, query: ClaimableQuery) -> int | None:
        """When a task that matches can be claimed by the passing of time alone; None when none will."""

    async def due(self, limit: int) -> Sequence[TaskKey]:
        """Tasks for which `lapse` has something to write now, the longest overdue first."""

    async def next_due_ms(self) -> int | None:
        """When `due` will next have something; None when never."""

    async def list_tasks(self, query: TaskQuery, after: PageMark | None, limit: int) -> Sequence[TaskRecord]:
        """One page of tasks, newest first."""

    async def pending_approvals(
        self, tenant_id: str, actor_id: str | None, after: ApprovalMark | None, limit: int
    ) -> Sequence[PendingApproval]:
        """Approvals that can be decided now, those that expire first in front; of one actor or of all."""

    async def task_of_approval(self, tenant_id: str, approval_id: str) -> TaskRecord | None:
        """The task that an approval is about, decided or not."""

    async def unknown_actions(
        self, tenant_id: str, after: UnknownMark | None, limit: int
    ) -> Sequence[UnknownAction]:
        """Effects whose outcome nobody knows, those that have waited longest in front."""

    async def held(self, tenant_id: str, worker_id: str) -> Sequence[TaskRecord]:
        """Tasks on which this worker has a live lease."""

    async def granted(self, tenant_id: str, worker_id: str, claim_id: str) -> TaskKey | None:
        """The task that this worker was granted by this claim, whether or not the lease is over.

        A claim to recover is known while its lease lasts, any other until the task is purged.
        """

    async def changes(self, tenant_id: str, after: int, limit: int) -> ChangePage:
        """Tasks that were changed after a position, renewals aside. A purged task is in no page.

        Positions belong to one `incarnation` of the store and mean nothing in another.
        """

    async def purgeable(
        self,
        tenant_id: str,
        ended_before_ms: int,
        limit: int,
        states: frozenset[TaskState] = TERMINAL,
    ) -> Sequence[TaskKey]:
        """Tasks that ended in one of these states before an instant, those that ended first in front."""

    async def purge(self, keys: Sequence[TaskKey], ended_before_ms: int) -> Sequence[Purged]:
        """Removes those of these tasks that ended before an instant, and keeps a tombstone of each."""

    async def referenced(self, blob_keys: Sequence[str]) -> frozenset[str]:
        """Those of these keys that an artifact of a task refers to, expired or not."""

    async def counts(self) -> Sequence[StateCount]:
        """How many tasks there are, by tenant and state."""

    async def backlog(self, tenant_id: str) -> Backlog:
        """What waits in a tenant now."""

    async def use_nonce(self, caller: str, nonce: str, ttl_ms: int) -> bool:
        """True the first time this caller presents this nonce within the time."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener` for every committed change, in order for each task; the answer ends that."""

    async def close(self) -> None:
        """Ends what the store holds open; what was answered stays."""
