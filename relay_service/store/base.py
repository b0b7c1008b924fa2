"""The routing store: a port whose every method is one decision together with its write.

A store owns the only clock that decides; callers pass durations. Each operation first
lets time pass (lapsed windows, leases and deadlines count before anything else), then
decides and writes in one atomic step, then tells its listeners what changed. What does
not happen is answered by a `Refusal` value.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from relay_service.core.identity import PublicIdentity
from relay_service.core.model import (
    Change,
    ChurnReport,
    Disposition,
    GrantedJob,
    JobStub,
    LeaseRef,
    Notice,
    Presence,
    Refusal,
    ReleaseReason,
    Route,
    RoutedJob,
    SealedEnvelope,
    Swept,
    Verdict,
)
from relay_service.store.pairings import PairingStore

Listener = Callable[[Change], None]


class StoreUnavailable(Exception):  # noqa: N818 - it names a state of the store
    """The store cannot be asked at present.

    Whether what was asked has happened is unknown; asking again is safe. Leases are not lost by it.
    """


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What a device asks for.

    Attributes:
        routes: the (site, owner) pairs it may run for at this instant.
        kinds: the kinds it advertises in this very claim.
        maximum: most jobs to grant; the per-device lease cap also applies.
        lease_ms: length of each lease.
        request_id: repeats return the same grants while their leases are held.
        authorise: hold every grant back until `authorise_grant`.
    """

    runner_id: str
    owner: str
    device: PublicIdentity
    routes: frozenset[Route]
    kinds: frozenset[str]
    maximum: int
    lease_ms: int
    request_id: str | None = None
    authorise: bool = False


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The job as it stands; `created` is False for a repeat, which changes nothing."""

    job: RoutedJob
    created: bool


@dataclass(frozen=True, slots=True)
class Completed:
    """`accepted` for the first result; `duplicate` for the finisher's repeat of it."""

    accepted: bool
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class TooLate:
    """A refused seal, with the state that the job was found in."""

    refusal: Refusal
    was: RoutedJob | None = None


@dataclass(frozen=True, slots=True)
class SharedProjection:
    """A projection as one relay has given it to the others; the document is the file's."""

    revision: int
    document: bytes


class RoutingStore(Protocol):
    """Jobs, leases, inboxes and presence of one relay."""

    @property
    def pairings(self) -> PairingStore:
        """Devices that wait for a person's approval."""

    async def now(self) -> int:
        """The store's clock, epoch ms: the only one that decides."""

    async def enqueue(self, site_id: str, stub: JobStub) -> Enqueued | Refusal:
        """Adds a job; a known (site, id) is returned unchanged, whatever its state.

        Returns:
            `Refusal.QUOTA_EXCEEDED` when the site has too many unfinished jobs.
        """

    async def job(self, site_id: str, job_id: str) -> RoutedJob | None:
        """Point read, scoped by site."""

    async def jobs(self) -> Sequence[RoutedJob]:
        """Every job; for operators only."""

    async def awaiting(self, site_id: str) -> Sequence[RoutedJob]:
        """Jobs of a site that wait for their payload, cancelled ones left out."""

    async def finished(self, site_id: str) -> Sequence[RoutedJob]:
        """Jobs of a site whose result is kept; reading acknowledges nothing."""

    async def claim(self, request: ClaimRequest) -> Sequence[GrantedJob]:
        """Grants up to `maximum` jobs, fair between routes and in order within one.

        With `authorise` each is held back: the site is not asked to seal, no operation of the holder
        knows the lease, and the job goes back without any mark unless it is authorised within
        `AUTHORISATION_MS`. A repeat of a claim answers what is held back as well.
        """

    async def authorise_grant(
        self, runner_id: str, lease: LeaseRef, signed_grant: bytes, lease_ms: int
    ) -> GrantedJob | None:
        """Lets a grant that was held back begin: window and lease count from now, the site is told.

        A repeat answers the grant as the first call made it, with the first call's `signed_grant`.

        Returns:
            None when the grant is over: lapsed, declined, cancelled, finished.
        """

    async def decline_grant(
        self, runner_id: str, lease: LeaseRef, *, refused: bool, retry_after_ms: int | None = None
    ) -> bool:
        """Returns a grant that was held back to the queue, without a word; False when it is over.

        Args:
            refused: this runner is never offered the job again.
            retry_after_ms: how long this runner is not asked again; None for no mark.
        """

    async def take_payload(self, runner_id: str, lease: LeaseRef) -> SealedEnvelope | Refusal:
        """Hands the payload over; repeatable while the job runs. Ends stickiness."""

    async def complete(
        self, runner_id: str, lease: LeaseRef, envelope: SealedEnvelope, disposition: Disposition
    ) -> Completed | Refusal:
        """Records the first result; a repeat by the finisher is a duplicate."""

    async def release_leases(
        self,
        runner_id: str,
        leases: Sequence[LeaseRef],
        reason: ReleaseReason,
        retry_after_ms: int | None = None,
    ) -> Sequence[str]:
        """Gives leases back; returns the job ids released. Unknown ones are skipped.

        Args:
            retry_after_ms: how long this runner is not asked again; at most 0 is no wait.
        """

    async def seal(
        self, site_id: str, lease: LeaseRef, recipient_key_id: str, envelope: SealedEnvelope
    ) -> RoutedJob | TooLate:
        """Stores the payload for the very grant it was sealed to."""

    async def cancel(self, site_id: str, job_id: str) -> bool:
        """Withdraws a job; False when the site has no such job.

        An unheld job ends at once. A held one gets no payload any more and its holder
        is told until it acknowledges. A finished one keeps its result.
        """

    async def cancel_requests(self, runner_id: str) -> Sequence[LeaseRef]:
        """Held, unfinished, cancelled jobs whose holder has not acknowledged."""

    async def acknowledge_cancels(self, runner_id: str, leases: Sequence[LeaseRef]) -> None:
        """The holder knows of these cancels; they are not announced again."""

    async def renew_leases(
        self, runner_id: str, leases: Sequence[LeaseRef], lease_ms: int
    ) -> Sequence[Verdict]:
        """One verdict per named lease, in order; held ones last `lease_ms` from now."""

    async def held(self, runner_id: str) -> Sequence[GrantedJob]:
        """Every unfinished job this runner holds."""

    async def acknowledge(
        self, site_id: str, job_ids: Sequence[str], notice_ids: Sequence[str] = ()
    ) -> Sequence[str]:
        """Settles finished and ended jobs by job id, ended and requeued ones by notice id.

        A request to seal is settled by sealing, a result by its job id alone.

        A settled result is forgotten and its job id is free again. Returns the ids that
        were settled by this call or before it; unknown ones are left out.
        """

    async def notices(self, site_id: str, after: int, limit: int) -> Sequence[Notice]:
        """Unsettled rows of a site's inbox in order, those with a sequence above `after`."""

    async def seen(self, presence: Presence) -> Presence:
        """Records a device, stamped by the store's clock; replaces what was known."""

    async def presence(self, runner_id: str) -> Presence | None:
        """What is known of a device, None when unknown or not seen for an hour."""

    async def everyone(self) -> Sequence[Presence]:
        """Every device that presence knows."""

    async def use_nonce(self, caller: str, nonce: str, ttl_ms: int) -> bool:
        """True the first time this caller presents this nonce within the time."""

    async def open_session(self, runner_id: str, session_id: str) -> int:
        """Notes that a stream of this device was accepted, and tells every relay on this store.

        Returns:
            The stream's epoch, above that of every earlier stream of the device.
        """

    async def share_projection(self, revision: int, document: bytes) -> bool:
        """Puts a projection in force for every relay on this store, and tells them.

        Returns:
            False, and nothing is changed, when the one in force has this revision or a higher one.
        """

    async def shared_projection(self) -> SharedProjection | None:
        """The projection in force for every relay on this store; None when none was ever shared."""

    async def oldest_queued_ms(self) -> int | None:
        """When the job was enqueued that has been queued the longest, by the store's clock.

        A job that came back to the queue counts from its enqueue. None when nothing is queued.
        """

    async def churn_reports(self) -> Sequence[ChurnReport]:
        """What was noticed of sites that let their windows lapse, newest first; for operators only.

        At most one an hour for each route, whichever relay noticed it; the last 100 of a site,
        for a day.
        """

    async def sweep(self) -> Swept:
        """Lets time pass and reports what it changed."""

    async def next_due_ms(self, within_ms: int | None = None) -> int | None:
        """When `sweep` will next have something to do; None when never.

        Args:
            within_ms: an instant that is further away than this may be too early, which costs less.
        """

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener` for every change, in order; the answer ends that."""

    async def close(self) -> None:
        """Ends what the store holds open."""
