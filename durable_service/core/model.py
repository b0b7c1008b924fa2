"""What a task is: one record, with its lease, ledger, approvals and references.

Everything here is an immutable value. Instants are epoch milliseconds by the store's clock (`*_at_ms`).
JSON values are kept as canonical text.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.definition import TaskDefinition, TaskKey
from durable_service.core.states import OPEN, TERMINAL, ActionState, ApprovalDecision, TaskState

Value = TypeVar("Value")


def with_entry(entries: Mapping[str, Value], name: str, value: Value) -> Mapping[str, Value]:
    """A copy with one entry set; the copy cannot be written to."""
    return MappingProxyType({**entries, name: value})


def without_entry(entries: Mapping[str, Value], name: str) -> Mapping[str, Value]:
    return MappingProxyType({key: value for key, value in entries.items() if key != name})


@dataclass(frozen=True, slots=True)
class Holder:
    """What a worker writes under: its id and the fence that its claim was granted."""

    worker_id: str
    fence: int


class ClaimReason(StrEnum):
    """Why a task was there to be claimed.

    A task is `resumed` when its last holder gave it up, and `reclaimed` when its lease ran out.
    """

    FRESH = "fresh"
    RESUMED = "resumed"
    RECLAIMED = "reclaimed"
    RECOVERY = "recovery"


@dataclass(frozen=True, slots=True)
class Lease:
    """Exclusive ownership until an instant; at that instant it is over."""

    worker_id: str
    fence: int
    expires_at_ms: int
    claim_id: str
    reason: ClaimReason


@dataclass(frozen=True, slots=True)
class Attempt:
    """One ordinary claim. Claims to recover or to acknowledge a cancellation are none."""

    id: str
    worker_id: str
    fence: int
    started_at_ms: int


class Ending(StrEnum):
    """How a lease ended by its holder's own act, or was taken back since its holder did not name it."""

    RELEASED = "released"
    TAKEN_BACK = "taken_back"
    YIELDED = "yielded"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Settlement:
    """The last act by which a holder ended its lease: what a repeat of it is recognised by."""

    worker_id: str
    fence: int
    ending: Ending
    result_ref: str | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """One irrevocable use of the budget."""

    id: str
    tokens: int
    cost_micros: int


class RejectionCause(StrEnum):
    """Why a dispatch was refused for good."""

    APPROVAL_DENIED = "approval_denied"
    APPROVAL_EXPIRED = "approval_expired"
    APPROVAL_CONSUMED = "approval_consumed"
    APPROVAL_BINDING = "approval_binding"


@dataclass(frozen=True, slots=True)
class Action:
    """One intended effect; what it will do is bound by the prepared hash and never changes.

    Attributes:
        evidence_ref: what settled the outcome, or the last look-up that did not.
        absent_evidence_ref: the evidence that released it to be sent again; it counts once.
    """

    id: str
    connector_version: str
    destination: str
    args: CanonicalJson
    prepared_hash: str
    idempotency_key: str
    state: ActionState
    created_at_ms: int
    updated_at_ms: int
    approval_id: str | None = None
    dispatch_fence: int | None = None
    dispatch_id: str | None = None
    result_ref: str | None = None
    evidence_ref: str | None = None
    absent_evidence_ref: str | None = None
    rejection: RejectionCause | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """One actor's single-use word on exactly one prepared action.

    Attributes:
        expires_at_ms: from then on it can be neither decided nor used to dispatch.
        lapse_told: the journal says that it expired undecided.
    """

    id: str
    action_id: str
    actor_id: str
    prepared_hash: str
    policy_revision: int
    expires_at_ms: int
    created_at_ms: int
    decision: ApprovalDecision = ApprovalDecision.PENDING
    consumed: bool = False
    decided_at_ms: int | None = None
    note: str | None = None
    lapse_told: bool = False

    def pending(self, now_ms: int) -> bool:
        return self.decision is ApprovalDecision.PENDING and self.expires_at_ms > now_ms


@dataclass(frozen=True, slots=True)
class ArtifactReference:
    """Immutable bytes kept beside a task; at the instant of expiry they cannot be read any more."""

    id: str
    blob_key: str
    digest: str
    size_bytes: int
    media_type: str
    expires_at_ms: int
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class Extension:
    """A named slot for hosts; its revision begins at 1 and grows by 1 with each change."""

    name: str
    revision: int
    value: CanonicalJson


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A checkpoint: the artifact `snapshot:<id>` that holds it, and its digest."""

    id: str
    artifact_id: str
    digest: str


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """One entry of a task's journal.

    Attributes:
        sequence: 1, 2, 3 … within the task, without gaps as written.
        attempt_id: the newest attempt at that moment.
        event_id: the caller's id of an appended event; None on the service's own entries.
    """

    sequence: int
    type: str
    at_ms: int
    attempt_id: str | None
    fence: int
    data: CanonicalJson
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """Everything about one task except its journal and its bytes.

    Attributes:
        revision: grows by 1 with every written change except a renewal.
        fence: grows by 1 with every lease.
        last_claim_id: of the newest lease, which may have been for recovery and then is no attempt.
        grace_attempts: attempts beyond the budget that reconciliations have earned.
        not_before_ms: the instant that a yielded task waits for.
        start_deadline_ms, finish_deadline_ms: cancellation is requested when they pass.
        last_sequence: of the newest event; 0 before the first.
    """

    definition: TaskDefinition
    digest: str
    created_at_ms: int
    updated_at_ms: int
    state: TaskState = TaskState.QUEUED
    revision: int = 0
    fence: int = 0
    lease: Lease | None = None
    settlement: Settlement | None = None
    last_claim_id: str | None = None
    attempts: tuple[Attempt, ...] = ()
    grace_attempts: int = 0
    reserved_tokens: int = 0
    reserved_cost_micros: int = 0
    reservations: Mapping[str, Reservation] = field(default_factory=lambda: MappingProxyType({}))
    actions: Mapping[str, Action] = field(default_factory=lambda: MappingProxyType({}))
    approvals: Mapping[str, Approval] = field(default_factory=lambda: MappingProxyType({}))
    extensions: Mapping[str, Extension] = field(default_factory=lambda: MappingProxyType({}))
    artifacts: Mapping[str, ArtifactReference] = field(default_factory=lambda: MappingProxyType({}))
    snapshots: Mapping[str, Snapshot] = field(default_factory=lambda: MappingProxyType({}))
    result_ref: str | None = None
    failure: str | None = None
    cancel_reason: str | None = None
    not_before_ms: int | None = None
    start_deadline_ms: int | None = None
    finish_deadline_ms: int | None = None
    last_sequence: int = 0

    @property
    def key(self) -> TaskKey:
        return self.definition.key

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def attempt_id(self) -> str | None:
        return self.attempts[-1].id if self.attempts else None

    @property
    def exhausted(self) -> bool:
        """Whether an ordinary claim would find no attempt left."""
        return len(self.attempts) >= self.definition.budget.max_attempts + self.grace_attempts

    def live_lease(self, now_ms: int) -> Lease | None:
        return self.lease if self.lease is not None and self.lease.expires_at_ms > now_ms else None

    def open_actions(self) -> Iterator[Action]:
        """Effects whose outcome is not written down."""
        return (action for action in self.actions.values() if action.state in OPEN)

    def pending_approvals(self, now_ms: int) -> Iterator[Approval]:
        return (approval for approval in self.approvals.values() if approval.pending(now_ms))


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is kept of a purged task, so that its id is not silently used again."""

    key: TaskKey
    digest: str
    purged_at_ms: int
