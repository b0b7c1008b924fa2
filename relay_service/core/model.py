"""What the relay knows: jobs, claims, leases, presence and notices.

Everything here is an immutable value. Instants are epoch milliseconds by the
store's clock (`*_at_ms`), spans are milliseconds (`*_ms`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from relay_service.core.identity import PublicIdentity


class JobState(StrEnum):
    """Where a job stands; `cancelled` is a mark on a job, not a state.

    `AUTHORISING` is known to the relay alone: a device has won the job and the policy is asked.
    To its site such a job is queued.
    """

    QUEUED = "queued"
    AUTHORISING = "authorising"
    AWAITING_PAYLOAD = "awaiting-payload"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"


class Audience(StrEnum):
    """Whose devices may run a job."""

    PRIVATE = "private"
    TEAM = "team"


class SizeClass(StrEnum):
    """Bucket of the payload's text length, declared by the site."""

    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"
    UNBOUNDED = "unbounded"


class Disposition(StrEnum):
    """The one fact about an outcome that travels in the clear."""

    OK = "ok"
    ERROR = "error"
    CANCELED = "canceled"


class Direction(StrEnum):
    """Which leg of the exchange an envelope travels."""

    PAYLOAD = "payload"
    RESULT = "result"


class Refusal(StrEnum):
    """Why a store operation did not happen. A value, never an exception."""

    NOT_FOUND = "not-found"
    NOT_HOLDER = "not-holder"
    STALE_LEASE = "stale-lease"
    NOT_READY = "not-ready"
    TERMINAL = "terminal"
    TOO_LATE = "too-late"
    CANCELLED = "cancelled"
    WRONG_RECIPIENT = "wrong-recipient"
    QUOTA_EXCEEDED = "quota-exceeded"


class ReleaseReason(StrEnum):
    """Why a holder gives a lease back.

    Only `REFUSED` is remembered for ever, and only `BAD_ENVELOPE` counts against
    the site: it is an unsealed lapse. The rest leave the job claimable at once.
    """

    SHUTDOWN = "shutdown"
    PAUSE = "pause"
    REVOKED = "revoked"
    BACKEND_DOWN = "backend-down"
    REFUSED = "refused"
    BAD_ENVELOPE = "bad-envelope"
    UNACKNOWLEDGED = "unacknowledged"


class LeaseEnd(StrEnum):
    """Why a lease is no longer its holder's."""

    EXPIRED = "expired"
    WINDOW_LAPSED = "window-lapsed"
    DEADLINE_PASSED = "deadline-passed"
    RELEASED = "released"
    CANCELLED = "cancelled"


class JobEnd(StrEnum):
    """Why a job ended without a result that the site can read."""

    EXPIRED = "expired"
    EVICTED_UNSEALED = "evicted-unsealed"
    CANCELLED = "cancelled"
    RESULT_DROPPED = "result-dropped"


class RequeueCause(StrEnum):
    """Why a job went back to the queue."""

    WINDOW_LAPSED = "window-lapsed"
    LEASE_LAPSED = "lease-lapsed"
    RELEASED = "released"
    REFUSED = "refused"
    BAD_ENVELOPE = "bad-envelope"


class NoticeKind(StrEnum):
    """What a row of a site's inbox says."""

    PLEASE_SEAL = "please-seal"
    RESULT_READY = "result-ready"
    JOB_ENDED = "job-ended"
    JOB_REQUEUED = "job-requeued"


class VerdictState(StrEnum):
    """The store's word on one lease."""

    ACTIVE = "active"
    CANCEL_REQUESTED = "cancel-requested"
    LOST = "lost"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class JobKey:
    """A job id is unique only within its site, so the pair is the key."""

    site_id: str
    job_id: str


@dataclass(frozen=True, slots=True)
class Route:
    """Work of one owner for one site; what consent and fairness are about."""

    site_id: str
    owner: str


@dataclass(frozen=True, slots=True)
class JobStub:
    """The complete public description of a job; there is no payload field."""

    id: str
    kind: str
    owner: str
    site: str
    audience: Audience
    size_class: SizeClass
    streaming: bool
    deadline_at_ms: int
    purpose: str | None = None


@dataclass(frozen=True, slots=True)
class SealedEnvelope:
    """Ciphertext with its routing header; opaque to everything on the server."""

    ciphertext: bytes
    recipient_key_id: str
    sender_key_id: str
    direction: Direction
    deadline_at_ms: int


@dataclass(frozen=True, slots=True)
class Claim:
    """One device holding one job: who, under which lease, until when, by whose signed word."""

    runner_id: str
    owner: str
    device: PublicIdentity
    lease_id: str
    lease_expires_at_ms: int
    signed_grant: bytes | None = None


@dataclass(frozen=True, slots=True)
class RoutedJob:
    """The relay's record of a job.

    Attributes:
        sequence: place in the queue; kept over requeues, so first in stays first out.
        claim: current or, when done, final holder.
        awaiting_until_ms: when the relay stops waiting for the site to seal.
        seal_attempts: consecutive windows the site wasted.
        attempts_before_seal: what `seal_attempts` was when the payload arrived; a device
            that cannot open the payload puts it back, so junk does not reset the count.
        reoffer_to: the one runner this job is offered to until a payload is taken.
        sticky_until_ms: when waiting for that runner counts as a wasted window.
        refused_by: runners that are never offered this job again.
        retry_after_ms: per runner, the instant before which it is not asked again.
        cancelled: withdrawn by the site.
        cancel_acknowledged: the holder has said that it knows.
        retained_until_ms: when an uncollected result is dropped.
    """

    key: JobKey
    stub: JobStub
    sequence: int
    state: JobState = JobState.QUEUED
    claim: Claim | None = None
    awaiting_until_ms: int | None = None
    seal_attempts: int = 0
    attempts_before_seal: int = 0
    reoffer_to: str | None = None
    sticky_until_ms: int | None = None
    refused_by: tuple[str, ...] = ()
    retry_after_ms: tuple[tuple[str, int], ...] = ()
    cancelled: bool = False
    cancel_acknowledged: bool = False
    payload: SealedEnvelope | None = None
    result: SealedEnvelope | None = None
    disposition: Disposition | None = None
    retained_until_ms: int | None = None

    @property
    def route(self) -> Route:
        """The (site, owner) pair this job's consent and fairness go by."""
        return Route(self.key.site_id, self.stub.owner)


@dataclass(frozen=True, slots=True)
class LeaseRef:
    """A lease as its holder names it."""

    job_id: str
    lease_id: str


@dataclass(frozen=True, slots=True)
class GrantedJob:
    """A stub together with the lease that its claimer now holds.

    `awaiting_until_ms` is 0 once the job is sealed and waits for its site no more. While a
    grant is `held_back`, nobody may be told of it: the policy has not answered.
    """

    site_id: str
    stub: JobStub
    lease_id: str
    lease_expires_at_ms: int
    awaiting_until_ms: int
    held_back: bool = False
    signed_grant: bytes | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for one lease.

    `remaining_ms` is set while the lease is held; the holder counts it from when it
    sent the question.
    """

    lease: LeaseRef
    state: VerdictState
    remaining_ms: int = 0
    expires_at_ms: int = 0
    end: LeaseEnd | None = None


@dataclass(frozen=True, slots=True)
class Capability:
    """One row of a device's matrix: a kind of work and the service behind it."""

    kind: str
    service: str
    backend_id: str
    backend_class: str
    model: str
    offer_scope: Audience
    known_models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WithheldKind:
    """A kind that several services could serve, so none is advertised."""

    kind: str
    claimants: tuple[tuple[str, Audience], ...]


@dataclass(frozen=True, slots=True)
class Presence:
    """A device was seen; a cache, never an authority on identity."""

    runner_id: str
    owner: str
    device: PublicIdentity
    capabilities: tuple[Capability, ...] = ()
    withheld: tuple[WithheldKind, ...] = ()
    last_seen_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Notice:
    """A row of a site's inbox, delivered again until it is settled.

    A job has at most one row that says what it waits for or how it ended
    (`PLEASE_SEAL`, `RESULT_READY`, `JOB_ENDED`: a later one replaces the earlier) and
    one `JOB_REQUEUED` row (`count` tells how often), which a `RESULT_READY` or
    `JOB_ENDED` row removes.
    """

    notice_id: str
    sequence: int
    key: JobKey
    kind: NoticeKind
    created_at_ms: int
    claim: Claim | None = None
    seal_until_ms: int | None = None
    disposition: Disposition | None = None
    result_bytes: int = 0
    end: JobEnd | None = None
    requeue: RequeueCause | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class WorkAvailable:
    """A job of this route can be claimed now; `only_runner` when it is reserved."""

    route: Route
    kind: str
    audience: Audience
    only_runner: str | None = None


@dataclass(frozen=True, slots=True)
class NoticeAdded:
    """The inbox of this site has a new row."""

    site_id: str


@dataclass(frozen=True, slots=True)
class LeaseChanged:
    """Something happened to a held lease that its holder must hear of.

    Exactly one of the three facts is set: the payload can be fetched, the site has
    cancelled, or the lease has ended.
    """

    runner_id: str
    lease: LeaseRef
    site_id: str
    payload_ready: bool = False
    cancel_requested: bool = False
    end: LeaseEnd | None = None


@dataclass(frozen=True, slots=True)
class ChurnReport:
    """A site lets its windows lapse for this owner; said once an hour at most.

    Attributes:
        expiries: windows that lapsed within the last `window_ms`.
        at_ms: when it was noticed, by the store's clock.
    """

    route: Route
    expiries: int
    window_ms: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """A stream of this device was accepted by some relay; older ones of the device are over."""

    runner_id: str
    session_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ProjectionShared:
    """Another projection is in force for every relay on this store."""

    revision: int


@dataclass(frozen=True, slots=True)
class PairingDecided:
    """A pairing was approved or denied."""

    pairing_id: str


Change = (
    WorkAvailable
    | NoticeAdded
    | LeaseChanged
    | ChurnReport
    | SessionOpened
    | ProjectionShared
    | PairingDecided
)


@dataclass(frozen=True, slots=True)
class Swept:
    """What time alone changed: keys put back to the queue and keys forgotten."""

    requeued: Sequence[JobKey]
    ended: Sequence[JobKey]
