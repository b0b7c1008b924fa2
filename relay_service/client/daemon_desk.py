"""What a device does about its jobs, as the relay tells of them. Nothing here waits."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from relay_service.client.calls import FETCH_PAYLOAD, Calls
from relay_service.client.daemon_admission import Admission, Decision
from relay_service.client.daemon_jobs import HeldJob, HeldJobs, Phase
from relay_service.client.daemon_releases import Reason, Releases
from relay_service.client.daemon_results import ResultDelivery
from relay_service.client.daemon_runs import NotRun, Runner
from relay_service.client.daemon_strangers import Strangers
from relay_service.client.dual_calls import DualCalls
from relay_service.client.errors import RelayError
from relay_service.client.pins import SitePins
from relay_service.client.wire import disposition_of
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_directory_pb2
from service_common.client_session_types import seconds_of
from service_common.clocks import Clock

logger = logging.getLogger("sealwork.client")

# A payload of this size and its frame around it may ride the session.
_INLINE_BYTES: Final = 32_768
_FETCH_AGAIN_SECONDS: Final = 1.0
_SOON_SECONDS: Final = 0.05
# Answers to a fetch after which there is nothing to give back.
_GONE: Final = frozenset({"JOB_FINISHED", "JOB_NOT_FOUND", "NOT_LEASE_HOLDER", "STALE_LEASE"})
_REFUSED: Final = daemon_plane_pb2.RELEASE_REASON_REFUSED


class JobDesk:
    """Takes grants, gets payloads, runs jobs, heeds verdicts.

    Attributes:
        held: The jobs that are held and not finished.
        idle: Set while none is.
    """

    def __init__(  # noqa: PLR0913 - parts, one each
        self,
        admission: Admission,
        pins: SitePins,
        runner: Runner,
        delivery: ResultDelivery,
        calls: DualCalls,
        unary: Calls,
        *,
        slots: int,
        clock: Clock,
        on_slot_free: Callable[[], None],
    ) -> None:
        """Work with these.

        Args:
            admission: The owner's rules.
            pins: The sites.
            runner: Runs a job.
            delivery: Takes the results.
            calls: The relay.
            unary: The relay, without a stream.
            slots: So many jobs are held at a time, whatever the relay grants.
            clock: Its monotonic half counts leases.
            on_slot_free: Told whenever a job has left.
        """
        self.held = HeldJobs(clock, self._lapse)
        self.idle = asyncio.Event()
        self.idle.set()
        self.releases = Releases(calls)
        self._admission = admission
        self._pins = pins
        self._runner = runner
        self._delivery = delivery
        self._calls = calls
        self._slots = slots
        self._clock = clock
        self._on_slot_free = on_slot_free
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers = Strangers(
            unary, calls, clock, on_directory=self.sites_changed, on_known=self._decide_again
        )

    # -- what the relay says ------------------------------------------------------------

    def granted(
        self, granted: daemon_plane_pb2.Granted, asked_at: float | None = None
    ) -> job_pb2.LeaseRef | None:
        """Take or refuse a grant; returns the lease to acknowledge.

        Args:
            granted: What was granted.
            asked_at: From when its time counts, by the monotonic clock: the moment at which it was asked
                for. None for one that was pushed: there is no earlier moment than this.
        """
        known = self.held.get(granted.lease.id)
        if known is not None:
            return known.lease
        since = self._clock.monotonic() if asked_at is None else asked_at
        signed = granted.grant if granted.HasField("grant") else None
        job = HeldJob(granted.stub, granted.lease.id, since + seconds_of(granted.lease.remaining), signed)
        if len(self.held) >= self._slots:
            # Nobody asked for it, but for a claim whose answer has crossed a new stream.
            self.releases.add(job.lease, daemon_plane_pb2.RELEASE_REASON_PAUSE)
            return None
        decision = self._admission.decide(job)
        if decision is Decision.REFUSE:
            self.releases.add(job.lease, _REFUSED)
            return None
        self.held.add(job)
        self.idle.clear()
        if decision is Decision.UNKNOWN_SITE:
            job.phase = Phase.DECIDING
            self._strangers.ask_about(job)
        return job.lease

    def payload_ready(self, ready: daemon_plane_pb2.PayloadReady) -> None:
        """Run the job whose payload has come, or get the payload first."""
        job = self.held.get(ready.lease.lease_id)
        if job is None or job.phase not in (Phase.DECIDING, Phase.WAITING):
            # Said again after a reconnect, or too late.
            return
        if job.phase is Phase.DECIDING:
            job.ready = ready
        elif ready.HasField("envelope"):
            self._start(job, ready.envelope)
        else:
            self._fetch(job, by_session=ready.size_bytes <= _INLINE_BYTES)

    def seek_payloads(self) -> None:
        """Ask for every payload that nobody will announce, as there is no stream, until it is there."""
        for job in self.held:
            if job.phase is Phase.WAITING and not job.sought:
                job.sought = True
                self._fetch(job, by_session=False)

    def verdict(self, verdict: job_pb2.LeaseVerdict, asked_at: float) -> job_pb2.LeaseRef | None:
        """Heed the relay's word on a lease; returns the lease when it is a cancel to acknowledge.

        Args:
            verdict: The word.
            asked_at: From when its time counts, by the monotonic clock.
        """
        job = self.held.get(verdict.lease.lease_id)
        if job is None:
            self._verdict_on_result(verdict)
            return None
        match verdict.state:
            case job_pb2.LEASE_STATE_ACTIVE:
                self._extend(job, verdict, asked_at)
            case job_pb2.LEASE_STATE_CANCEL_REQUESTED:
                self._extend(job, verdict, asked_at)
                self._cancel(job)
                return job.lease
            case job_pb2.LEASE_STATE_LOST | job_pb2.LEASE_STATE_COMPLETED:
                logger.info("the lease of job %s is lost", job.stub.id)
                self._drop(job)
            case _:
                pass
        return None

    def sites_changed(self, directory: site_directory_pb2.SiteDirectory) -> None:
        """Take over a directory; work for sites that have left it stops."""
        gone = self._pins.adopt(directory)
        for job in self.held:
            if job.stub.site in gone:
                self._give_back(job, daemon_plane_pb2.RELEASE_REASON_REVOKED)

    # -- what the owner says ------------------------------------------------------------

    def give_back_waiting(self) -> None:
        """Give back every job whose work has not begun."""
        for job in self.held:
            if job.phase is not Phase.RUNNING:
                self._give_back(job, daemon_plane_pb2.RELEASE_REASON_SHUTDOWN)

    def give_back_all(self) -> None:
        """Stop all work and give the jobs back."""
        for job in self.held:
            self._give_back(job, daemon_plane_pb2.RELEASE_REASON_SHUTDOWN)

    def drop_all(self) -> None:
        """Stop all work; the relay will hear nothing of it."""
        for job in self.held:
            self._drop(job)

    async def close(self) -> None:
        """Return when no work is left running; `give_back_all` or `drop_all` comes before."""
        self.held.close()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def leases(self) -> Sequence[job_pb2.LeaseRef]:
        """Every lease that is held: of jobs, and of results on their way."""
        return [*(job.lease for job in self.held), *self._delivery.leases()]

    # -- payload and run ----------------------------------------------------------------

    def _fetch(self, job: HeldJob, *, by_session: bool) -> None:
        job.phase = Phase.FETCHING
        request = daemon_plane_pb2.FetchPayloadRequest(lease=job.lease)
        done = partial(self._fetched, job)
        self._calls.post("fetch_payload", FETCH_PAYLOAD, request, done, by_session=by_session)

    def _fetched(self, job: HeldJob, answer: daemon_plane_pb2.FetchPayloadResponse | RelayError) -> None:
        if self.held.get(job.lease.lease_id) is not job:
            return
        if not isinstance(answer, RelayError):
            self._start(job, answer.envelope)
        elif answer.reason in _GONE:
            self._drop(job)
        elif answer.reason == "JOB_CANCELLED":
            self._cancel(job)
        else:
            job.phase = Phase.WAITING
            self._clock.call_later(self._pause_before_fetch(job, answer), lambda: self._fetch_again(job))

    def _pause_before_fetch(self, job: HeldJob, error: RelayError) -> float:
        if error.reason == "PAYLOAD_NOT_SEALED":
            # A site seals within a moment, as a rule: sooner than the relay's hint, which is for anybody.
            job.fetches += 1
            return min(_FETCH_AGAIN_SECONDS, _SOON_SECONDS * float(2 ** min(job.fetches - 1, 8)))
        logger.info("the payload of job %s is asked for again: %s", job.stub.id, error)
        return max(_FETCH_AGAIN_SECONDS, (error.retry_after_ms or 0) / 1000)

    def _fetch_again(self, job: HeldJob) -> None:
        if self.held.get(job.lease.lease_id) is job and job.phase is Phase.WAITING:
            self._fetch(job, by_session=False)

    def _start(self, job: HeldJob, envelope: job_pb2.SealedEnvelope) -> None:
        job.phase = Phase.RUNNING
        job.task = asyncio.get_running_loop().create_task(self._run(job, envelope))
        # The loop keeps no hold of a task, and neither does a job that has left.
        self._tasks.add(job.task)
        job.task.add_done_callback(self._tasks.discard)

    async def _run(self, job: HeldJob, envelope: job_pb2.SealedEnvelope) -> None:
        logger.info("job %s of %s begins", job.stub.id, job.stub.owner)
        try:
            request = await self._runner.run(job, envelope)
        except NotRun as error:
            logger.warning("job %s is given back: %s", job.stub.id, error)
            job.task = None
            self._give_back(job, error.reason)
        except Exception as error:  # noqa: BLE001 - one job's fault must not take its lease along for ever
            logger.error("job %s could not be run: %s", job.stub.id, type(error).__name__)
            job.task = None
            self._give_back(job, _REFUSED)
        else:
            # No await in between: from here on a cancel comes too late to matter.
            if self._remove(job):
                logger.info("job %s is done: %s", job.stub.id, disposition_of(request.disposition))
                await self._delivery.accept(request)

    # -- ends ---------------------------------------------------------------------------

    def _extend(self, job: HeldJob, verdict: job_pb2.LeaseVerdict, asked_at: float) -> None:
        remaining = seconds_of(verdict.remaining)
        # A pushed verdict may say nothing about time.
        if remaining > 0:
            job.deadline = asked_at + remaining

    def _cancel(self, job: HeldJob) -> None:
        if job.cancel_requested:
            return
        job.cancel_requested = True
        if job.phase is Phase.RUNNING:
            job.interrupt()
        elif self._remove(job):
            # Never begun; the site is told all the same, by the same means.
            self._calls.spawn(self._report_canceled(job))

    async def _report_canceled(self, job: HeldJob) -> None:
        try:
            request = self._runner.canceled(job)
        except NotRun as error:
            self.releases.add(job.lease, error.reason)
        else:
            await self._delivery.accept(request)

    def _verdict_on_result(self, verdict: job_pb2.LeaseVerdict) -> None:
        if verdict.state in (job_pb2.LEASE_STATE_LOST, job_pb2.LEASE_STATE_COMPLETED):
            self._delivery.discard(verdict.lease.lease_id)
        elif verdict.state != job_pb2.LEASE_STATE_UNSPECIFIED:
            self._delivery.deliver(verdict.lease.lease_id)

    def _lapse(self, job: HeldJob) -> None:
        logger.warning("the lease of job %s has run out; its work stops", job.stub.id)
        self._drop(job)

    def _give_back(self, job: HeldJob, reason: Reason) -> None:
        if self._remove(job):
            self.releases.add(job.lease, reason)
            job.interrupt()

    def _drop(self, job: HeldJob) -> None:
        if self._remove(job):
            job.interrupt()

    def _remove(self, job: HeldJob) -> bool:
        if not self.held.remove(job):
            return False
        if not len(self.held):
            self.idle.set()
        self._on_slot_free()
        return True

    def _decide_again(self, job: HeldJob) -> None:
        decision = self._admission.decide(job)
        if decision is Decision.UNKNOWN_SITE:
            logger.warning("job %s is refused: its site %s is not pinned", job.stub.id, job.stub.site)
        if decision is not Decision.ACCEPT:
            self._give_back(job, _REFUSED)
            return
        job.phase = Phase.WAITING
        if job.ready is not None:
            self.payload_ready(job.ready)
