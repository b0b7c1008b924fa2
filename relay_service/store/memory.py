"""The routing store in the memory of one process: the embedded default.

A restart loses everything and sites publish again. No method awaits anything between its
first line and its last, which is what makes each of them one atomic step.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

from relay_service.core import moves, transitions
from relay_service.core.limits import CLOCK_SKEW_MS, PRESENCE_RETENTION_MS
from relay_service.core.model import (
    ChurnReport,
    Claim,
    Disposition,
    GrantedJob,
    JobEnd,
    JobKey,
    JobState,
    JobStub,
    LeaseRef,
    Notice,
    Presence,
    ProjectionShared,
    Refusal,
    ReleaseReason,
    RoutedJob,
    SealedEnvelope,
    SessionOpened,
    Swept,
    Verdict,
    VerdictState,
)
from relay_service.core.moves import Transition, granted_job
from relay_service.core.quotas import Quotas
from relay_service.store.base import ClaimRequest, Completed, Enqueued, Listener, SharedProjection, TooLate
from relay_service.store.memory_recall import Recall
from relay_service.store.memory_row import Row
from relay_service.store.memory_steps import Steps
from relay_service.store.memory_table import SiteShelf
from relay_service.store.pairings_memory import MemoryPairings

# Settled ids: long enough for a site whose answer was lost to ask again.
_SETTLED_KEPT_MS = 120_000
_SETTLED_IDS = 65_536
_DEFAULT_QUOTAS = Quotas()


class MemoryRoutingStore:
    """`RoutingStore` without a server or a file."""

    def __init__(
        self, clock: Callable[[], int], new_id: Callable[[], str], quotas: Quotas = _DEFAULT_QUOTAS
    ) -> None:
        """Makes an empty store.

        Args:
            clock: epoch ms.
            new_id: lease ids that nobody can guess, never the same twice.
        """
        self._clock = clock
        self._new_id = new_id
        self._quotas = quotas
        self._steps = Steps(quotas)
        self._table = self._steps.table
        self._inboxes = self._steps.inboxes
        self._sequence = count(1)
        self._presence: Recall[str, Presence] = Recall(PRESENCE_RETENTION_MS)
        self._epochs: Recall[str, int] = Recall(PRESENCE_RETENTION_MS)
        self._projection: SharedProjection | None = None
        self.pairings = MemoryPairings(clock, self._steps.say)
        self._nonces: Recall[tuple[str, str], bool] = Recall(2 * CLOCK_SKEW_MS)
        self._settled: Recall[tuple[str, str, str], bool] = Recall(_SETTLED_KEPT_MS, _SETTLED_IDS)

    @property
    def inspected(self) -> int:
        """Routes, lanes and jobs that claims have looked at so far."""
        return self._table.queues.inspected

    async def now(self) -> int:
        return self._clock()

    async def enqueue(self, site_id: str, stub: JobStub) -> Enqueued | Refusal:
        now_ms = self._begin()
        shelf = self._table.site(site_id)
        known = None if shelf is None else shelf.rows.get(stub.id)
        if known is not None:
            return Enqueued(known.known, created=False)
        if shelf is not None and shelf.unfinished >= self._quotas.unfinished_jobs_per_site:
            return Refusal.QUOTA_EXCEEDED
        key = JobKey(site_id, stub.id)
        # An earlier job of this id is over for its site: what is said from now on is about this one.
        self._inboxes.clear(key)
        self._settled.pop(("job", site_id, stub.id))
        row = self._table.new_row(site_id, stub, now_ms)
        self._steps.take(row, transitions.enqueue(key, stub, next(self._sequence)), now_ms)
        self._steps.tell()
        return Enqueued(row.known, created=True)

    async def job(self, site_id: str, job_id: str) -> RoutedJob | None:
        self._begin()
        return _job(self._table.row(site_id, job_id))

    async def jobs(self) -> Sequence[RoutedJob]:
        self._begin()
        return [row.known for row in self._table.rows()]

    async def awaiting(self, site_id: str) -> Sequence[RoutedJob]:
        self._begin()
        shelf = self._table.site(site_id)
        return [] if shelf is None else [row.known for row in shelf.awaiting]

    async def finished(self, site_id: str) -> Sequence[RoutedJob]:
        self._begin()
        shelf = self._table.site(site_id)
        return [] if shelf is None else [row.known for row in shelf.finished]

    async def claim(self, request: ClaimRequest) -> Sequence[GrantedJob]:
        now_ms = self._begin()
        granted = self._repeated(request) or self._grant(request, now_ms)
        self._steps.tell()
        return granted

    async def authorise_grant(
        self, runner_id: str, lease: LeaseRef, signed_grant: bytes, lease_ms: int
    ) -> GrantedJob | None:
        now_ms = self._begin()
        row = self._held_back(lease)
        step = transitions.authorise(_job(row), runner_id, lease.lease_id, signed_grant, lease_ms, now_ms)
        if row is None or step is None:
            return None
        self._take(row, step, now_ms)
        return granted_job(row.known)

    async def decline_grant(
        self, runner_id: str, lease: LeaseRef, *, refused: bool, retry_after_ms: int | None = None
    ) -> bool:
        now_ms = self._begin()
        row = self._held_back(lease)
        step = transitions.decline(
            _job(row), runner_id, lease.lease_id, now_ms, refused=refused, retry_after_ms=retry_after_ms
        )
        if step is not None:
            self._take(row, step, now_ms)
        return step is not None

    async def take_payload(self, runner_id: str, lease: LeaseRef) -> SealedEnvelope | Refusal:
        now_ms = self._begin()
        row = self._table.resolve(runner_id, lease.job_id, lease.lease_id)
        step = transitions.take_payload(_job(row), runner_id, lease.lease_id)
        if isinstance(step, Refusal):
            return step
        self._take(row, step, now_ms)
        return moves.payload_of(step.job)

    async def complete(
        self, runner_id: str, lease: LeaseRef, envelope: SealedEnvelope, disposition: Disposition
    ) -> Completed | Refusal:
        now_ms = self._begin()
        row = self._table.resolve(runner_id, lease.job_id, lease.lease_id)
        step = transitions.complete(_job(row), runner_id, lease.lease_id, envelope, disposition, now_ms)
        if isinstance(step, Refusal):
            past = self._steps.past_lease(runner_id, lease, now_ms)
            # Collected already, and the finisher never heard that its result arrived.
            finished_it = step is Refusal.NOT_FOUND and past is not None and past.end is None
            return Completed(accepted=False, duplicate=True) if finished_it else step
        if row is None or step.job is row.job:
            return Completed(accepted=False, duplicate=True)
        self._steps.take(row, step, now_ms)
        self._make_room(row.shelf, now_ms)
        self._steps.tell()
        return Completed(accepted=True)

    async def release_leases(
        self,
        runner_id: str,
        leases: Sequence[LeaseRef],
        reason: ReleaseReason,
        retry_after_ms: int | None = None,
    ) -> Sequence[str]:
        now_ms = self._begin()
        released: list[str] = []
        for lease in leases:
            row = self._table.resolve(runner_id, lease.job_id, lease.lease_id)
            step = transitions.release(_job(row), runner_id, lease.lease_id, reason, now_ms, retry_after_ms)
            if row is not None and step is not None:
                self._steps.take(row, step, now_ms)
                released.append(lease.job_id)
        self._steps.tell()
        return released

    async def seal(
        self, site_id: str, lease: LeaseRef, recipient_key_id: str, envelope: SealedEnvelope
    ) -> RoutedJob | TooLate:
        now_ms = self._begin()
        row = self._table.row(site_id, lease.job_id)
        if row is None:
            return TooLate(Refusal.NOT_FOUND)
        step = transitions.seal(row.known, lease.lease_id, recipient_key_id, envelope)
        if isinstance(step, Refusal):
            return TooLate(step, row.known)
        self._take(row, step, now_ms)
        return row.known

    async def cancel(self, site_id: str, job_id: str) -> bool:
        now_ms = self._begin()
        row = self._table.row(site_id, job_id)
        if row is None:
            return False
        self._take(row, transitions.cancel(row.known), now_ms)
        return True

    async def cancel_requests(self, runner_id: str) -> Sequence[LeaseRef]:
        self._begin()
        held = (row.known for row in self._table.held(runner_id))
        return [
            LeaseRef(job.key.job_id, moves.holder(job).lease_id)
            for job in held
            if job.cancelled and not job.cancel_acknowledged
        ]

    async def acknowledge_cancels(self, runner_id: str, leases: Sequence[LeaseRef]) -> None:
        now_ms = self._begin()
        for lease in leases:
            row = self._table.resolve(runner_id, lease.job_id, lease.lease_id)
            step = transitions.acknowledge_cancel(_job(row), runner_id, lease.lease_id)
            if step is not None:
                self._take(row, step, now_ms)

    async def renew_leases(
        self, runner_id: str, leases: Sequence[LeaseRef], lease_ms: int
    ) -> Sequence[Verdict]:
        now_ms = self._begin()
        return [self._renew(runner_id, lease, lease_ms, now_ms) for lease in leases]

    async def held(self, runner_id: str) -> Sequence[GrantedJob]:
        self._begin()
        held = (row.known for row in self._table.held(runner_id))
        return [granted_job(job) for job in held if job.state in moves.HELD]

    async def acknowledge(
        self, site_id: str, job_ids: Sequence[str], notice_ids: Sequence[str] = ()
    ) -> Sequence[str]:
        now_ms = self._begin()
        settled = [job_id for job_id in job_ids if self._settle_job(site_id, job_id, now_ms)]
        settled += [notice_id for notice_id in notice_ids if self._settle_notice(site_id, notice_id, now_ms)]
        self._steps.tell()
        return settled

    async def notices(self, site_id: str, after: int, limit: int) -> Sequence[Notice]:
        self._begin()
        return self._inboxes.page(site_id, after, limit)

    async def seen(self, presence: Presence) -> Presence:
        now_ms = self._begin()
        stamped = replace(presence, last_seen_at_ms=now_ms)
        self._presence.put(presence.runner_id, stamped, now_ms)
        return stamped

    async def presence(self, runner_id: str) -> Presence | None:
        return self._presence.get(runner_id, self._begin())

    async def everyone(self) -> Sequence[Presence]:
        return list(self._presence.values(self._begin()))

    async def use_nonce(self, caller: str, nonce: str, ttl_ms: int) -> bool:
        now_ms = self._begin()
        if self._nonces.get((caller, nonce), now_ms):
            return False
        self._nonces.put((caller, nonce), value=True, now_ms=now_ms, kept_ms=ttl_ms)
        return True

    async def open_session(self, runner_id: str, session_id: str) -> int:
        now_ms = self._begin()
        # The clock as a floor, so that epochs grow over a restart of this process too.
        epoch = max(now_ms, (self._epochs.get(runner_id, now_ms) or 0) + 1)
        self._epochs.put(runner_id, epoch, now_ms)
        self._steps.say(SessionOpened(runner_id, session_id, epoch))
        return epoch

    async def share_projection(self, revision: int, document: bytes) -> bool:
        self._begin()
        if self._projection is not None and self._projection.revision >= revision:
            return False
        self._projection = SharedProjection(revision, document)
        self._steps.say(ProjectionShared(revision))
        return True

    async def shared_projection(self) -> SharedProjection | None:
        return self._projection

    async def oldest_queued_ms(self) -> int | None:
        self._begin()
        return self._table.ages.oldest_ms()

    async def churn_reports(self) -> Sequence[ChurnReport]:
        return self._steps.reports.recent(self._begin())

    async def sweep(self) -> Swept:
        swept = self._steps.pass_time(self._clock())
        self._steps.tell()
        return swept

    async def next_due_ms(self, within_ms: int | None = None) -> int | None:  # noqa: ARG002 - it knows
        return self._steps.next_due_ms()

    def listen(self, listener: Listener) -> Callable[[], None]:
        return self._steps.listen(listener)

    async def close(self) -> None:
        self._steps.close()

    def _begin(self) -> int:
        """The instant of an operation, with everything done that was due by then."""
        now_ms = self._clock()
        if self._steps.may_be_due(now_ms):
            self._steps.pass_time(now_ms)
            self._steps.tell()
        return now_ms

    def _take(self, row: Row | None, step: Transition, now_ms: int) -> None:
        if row is not None:
            self._steps.take(row, step, now_ms)
            self._steps.tell()

    def _held_back(self, lease: LeaseRef) -> Row | None:
        row = self._table.leased(lease.lease_id)
        return row if row is not None and row.known.key.job_id == lease.job_id else None

    def _repeated(self, request: ClaimRequest) -> Sequence[GrantedJob]:
        rows = (self._table.leased(lease_id) for lease_id in self._steps.claims.leases(request))
        return [granted_job(row.known) for row in rows if row is not None and not row.known.cancelled]

    def _grant(self, request: ClaimRequest, now_ms: int) -> Sequence[GrantedJob]:
        granted: list[GrantedJob] = []
        room = min(
            request.maximum, self._quotas.leases_per_device - self._table.held_count(request.runner_id)
        )
        if room <= 0:
            return granted
        turns = self._table.queues.turns(request)
        until = now_ms + request.lease_ms
        decide = transitions.hold_back if request.authorise else transitions.grant
        while len(granted) < room and (row := turns.next()) is not None:
            claim = Claim(request.runner_id, request.owner, request.device, self._new_id(), until)
            self._steps.take(row, decide(row.known, claim, now_ms), now_ms)
            granted.append(granted_job(row.known))
        self._steps.claims.remember(request, [job.lease_id for job in granted])
        return granted

    def _renew(self, runner_id: str, lease: LeaseRef, lease_ms: int, now_ms: int) -> Verdict:
        row = self._table.leased(lease.lease_id)
        job = _job(row)
        if row is None or job is None or job.claim is None or job.key.job_id != lease.job_id:
            past = self._steps.past_lease(runner_id, lease, now_ms)
            if past is not None and past.end is None:
                return Verdict(lease, VerdictState.COMPLETED)
            return Verdict(lease, VerdictState.LOST, end=None if past is None else past.end)
        if job.claim.runner_id != runner_id or job.state is JobState.AUTHORISING:
            return Verdict(lease, VerdictState.LOST)
        if job.state is JobState.DONE:
            return Verdict(lease, VerdictState.COMPLETED)
        self._steps.take(row, transitions.renew(job, lease_ms, now_ms), now_ms)
        state = VerdictState.CANCEL_REQUESTED if job.cancelled else VerdictState.ACTIVE
        return Verdict(lease, state, lease_ms, now_ms + lease_ms)

    def _make_room(self, shelf: SiteShelf, now_ms: int) -> None:
        """Drops the oldest results of a site until the rest is within its quota."""
        while len(shelf.finished) > 1 and (
            len(shelf.finished) > self._quotas.results_per_site
            or shelf.result_bytes > self._quotas.result_bytes_per_site
        ):
            oldest = next(iter(shelf.finished))
            self._steps.take(oldest, moves.ended(JobEnd.RESULT_DROPPED), now_ms)

    def _settle_job(self, site_id: str, job_id: str, now_ms: int) -> bool:
        row = self._table.row(site_id, job_id)
        name = ("job", site_id, job_id)
        if row is not None:
            step = transitions.collect(row.known)
            if step is None:
                return False
            self._steps.take(row, step, now_ms)
        elif not self._inboxes.clear(JobKey(site_id, job_id)):
            return self._settled.get(name, now_ms) is not None
        self._settled.put(name, value=True, now_ms=now_ms)
        return True

    def _settle_notice(self, site_id: str, notice_id: str, now_ms: int) -> bool:
        name = ("notice", site_id, notice_id)
        if not self._inboxes.settle(site_id, notice_id):
            return self._settled.get(name, now_ms) is not None
        self._settled.put(name, value=True, now_ms=now_ms)
        return True


def _job(row: Row | None) -> RoutedJob | None:
    return None if row is None else row.job
