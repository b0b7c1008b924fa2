"""What a site does after a gap: it reads what it may have missed, and publishes again what may be lost."""

import logging
from collections.abc import Sequence
from typing import Final

from relay_service.client.calls import ENQUEUE_JOBS
from relay_service.client.dual_calls import DualCalls
from relay_service.client.errors import JobEndedError, JobEndReason, RelayError
from relay_service.client.site_inbox import InboxReader
from relay_service.client.site_jobs import JobTable, SiteJob
from relay_service.client.site_settlement import Settlement
from relay_service.client.wire import milliseconds_of
from sealwork.relay.v1 import site_plane_pb2
from service_common.clocks import Clock
from service_common.statuses import error_from_status

logger = logging.getLogger("sealwork.client")

_JOBS_PER_CALL: Final = 100


class CatchUp:
    """Brings the jobs of this process and the relay's view of them together again."""

    def __init__(
        self, jobs: JobTable, inbox: InboxReader, calls: DualCalls, settlement: Settlement, clock: Clock
    ) -> None:
        """Work for these jobs."""
        self._jobs = jobs
        self._inbox = inbox
        self._calls = calls
        self._settlement = settlement
        self._clock = clock
        self._running = False
        self._wanted = False

    def start(self) -> None:
        """Catch up in the background; once more if that is under way, and may be past what was missed."""
        self._wanted = True
        if not self._running:
            self._running = True
            self._calls.spawn(self._run())

    async def _run(self) -> None:
        try:
            while self._wanted:
                self._wanted = False
                await self._once()
        finally:
            self._running = False

    async def _once(self) -> None:
        try:
            jobs = _open_ones(self._jobs)
            # The inbox first: a job whose end is told there must not be published once more.
            await self._inbox.read_all()
            for start in range(0, len(jobs), _JOBS_PER_CALL):
                # Asked anew each time: a job that has ended meanwhile may be forgotten by now, and would be
                # taken for a new one.
                await self._publish(_open_ones(jobs[start : start + _JOBS_PER_CALL]))
        except RelayError as error:
            logger.warning("could not catch up with the relay: %s", error)

    async def _publish(self, jobs: Sequence[SiteJob]) -> None:
        """A relay that kept its jobs in memory has lost them; one that has them answers that it does."""
        if not jobs:
            return
        request = site_plane_pb2.EnqueueJobsRequest(stubs=[job.stub for job in jobs])
        with self._settlement.publishing([job.stub.id for job in jobs]):
            answer = await self._calls.call("enqueue_jobs", ENQUEUE_JOBS, request)
        for job, result in zip(jobs, answer.results, strict=False):
            if result.WhichOneof("outcome") == "error":
                self._refused(job, RelayError(error_from_status(result.error)))

    def _refused(self, job: SiteJob, error: RelayError) -> None:
        late = self._clock.now_ms() >= milliseconds_of(job.stub.deadline_time)
        job.fail(JobEndedError(job.stub.id, JobEndReason.EXPIRED) if late else error)


def _open_ones(jobs: JobTable | Sequence[SiteJob]) -> list[SiteJob]:
    return [job for job in jobs if not job.ending.done()]
