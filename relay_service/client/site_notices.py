"""What a site does with the rows of its inbox."""

import logging
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final

from relay_service.client.calls import CANCEL_JOB, GET_RESULT, SEAL_PAYLOAD
from relay_service.client.dual_calls import DualCalls
from relay_service.client.envelope import SealError
from relay_service.client.errors import JobEndedError, RelayError, ResultRefusedError
from relay_service.client.site_envelopes import ResultMessage, SiteEnvelopes, UntrustedDevice
from relay_service.client.site_hand_over import Admit, hand_over_of
from relay_service.client.site_jobs import JobTable, SiteJob
from relay_service.client.site_settlement import Settlement
from relay_service.client.wire import identity_from_proto, job_end_of
from sealwork.relay.v1 import site_plane_pb2

logger = logging.getLogger("sealwork.client")

OnOrphan = Callable[[site_plane_pb2.SiteNotice], None]

_ORPHANS: Final = 1_024
# Refusals of a payload that the next grant would bring again.
_HOPELESS: Final = frozenset({"ENVELOPE_TOO_LARGE", "FIELD_INVALID"})
_INLINE_BYTES: Final = 24_576


class NoticeDesk:
    """Seals, opens and settles, as the notices say. Handling one twice is the same as handling it once."""

    def __init__(
        self,
        jobs: JobTable,
        envelopes: SiteEnvelopes,
        calls: DualCalls,
        settlement: Settlement,
        on_orphan: OnOrphan | None = None,
    ) -> None:
        """Work for these jobs.

        Args:
            jobs: The jobs of this process.
            envelopes: Seals and opens.
            calls: The relay.
            settlement: Lets the relay forget.
            on_orphan: Told of notices about jobs that this process does not know.
        """
        self._jobs = jobs
        self._envelopes = envelopes
        self._calls = calls
        self._settlement = settlement
        self._on_orphan = on_orphan
        self._orphans: OrderedDict[str, site_plane_pb2.SiteNotice] = OrderedDict()

    def handle(self, notice: site_plane_pb2.SiteNotice) -> None:
        """Do what a notice asks for."""
        arm = notice.WhichOneof("notice")
        job = self._jobs.get(notice.job_id)
        if job is None:
            self._handle_unknown(arm, notice)
        elif notice.notice_id not in job.handled:
            job.handled.add(notice.notice_id)
            self._handle_known(arm, job, notice)

    def take_up(self, job: SiteJob) -> None:
        """Handle what came about this job before it was known here."""
        notice = self._orphans.pop(job.stub.id, None)
        if notice is not None:
            self.handle(notice)

    def fetch_result(self, job: SiteJob, *, notice_id: str = "", by_session: bool = True) -> None:
        """Read the result of a job that is known to be finished."""
        request = site_plane_pb2.GetResultRequest(job_id=job.stub.id)
        done = partial(self._fetched, job, notice_id)
        self._calls.post("get_result", GET_RESULT, request, done, by_session=by_session)

    def settle(self, job: SiteJob) -> None:
        """Let the relay forget a job that has ended here."""
        if not job.ending.done() or not self._jobs.settle(job):
            return
        if job.over:
            self._settlement.add(job_id=job.stub.id)

    def _handle_unknown(self, arm: str | None, notice: site_plane_pb2.SiteNotice) -> None:
        if self._jobs.was_settled(notice.job_id):
            # Sent before the relay heard, or the answer was lost.
            if arm in ("result_ready", "job_ended"):
                self._settlement.add(job_id=notice.job_id)
            return
        self._orphans[notice.job_id] = notice
        self._orphans.move_to_end(notice.job_id)
        if len(self._orphans) > _ORPHANS:
            self._orphans.popitem(last=False)
        if self._on_orphan is not None:
            self._on_orphan(notice)

    def _handle_known(self, arm: str | None, job: SiteJob, notice: site_plane_pb2.SiteNotice) -> None:
        match arm:
            case "please_seal":
                self._seal(job, notice)
            case "result_ready" if notice.result_ready.HasField("envelope"):
                self._accept(job, notice.result_ready)
            case "result_ready":
                small = notice.result_ready.size_bytes <= _INLINE_BYTES
                self.fetch_result(job, notice_id=notice.notice_id, by_session=small)
            case "job_ended":
                job.over = True
                job.fail(JobEndedError(job.stub.id, job_end_of(notice.job_ended)))
            case "job_requeued":
                job.requeues = max(job.requeues, notice.job_requeued.count)
                self._settlement.add(notice_id=notice.notice_id)
            case _:
                # A kind of notice that a newer relay has; it stays in the inbox.
                pass

    def _seal(self, job: SiteJob, notice: site_plane_pb2.SiteNotice) -> None:
        if job.ending.done():
            return
        try:
            request = self._envelopes.seal(job.stub, job.plaintext, notice.please_seal)
        except UntrustedDevice:
            # The window passes, and another device may claim.
            return
        except SealError as error:
            self._give_up(job, error)
            return
        if job.admit is None:
            self._hand_over(job, notice, request)
        else:
            self._calls.spawn(self._ask(job.admit, job, notice, request))

    async def _ask(
        self,
        admit: Admit,
        job: SiteJob,
        notice: site_plane_pb2.SiteNotice,
        request: site_plane_pb2.SealPayloadRequest,
    ) -> None:
        try:
            admitted = await admit(hand_over_of(job.stub.id, notice.please_seal))
        except Exception as error:  # noqa: BLE001 - whoever is asked may fail, and then nothing leaves
            logger.warning("no payload of job %s leaves: %s", job.stub.id, type(error).__name__)
            job.handled.discard(notice.notice_id)
            return
        # No await in between: whoever has agreed may count on it that the payload is on its way.
        if admitted and not job.ending.done():
            self._hand_over(job, notice, request)

    def _hand_over(
        self,
        job: SiteJob,
        notice: site_plane_pb2.SiteNotice,
        request: site_plane_pb2.SealPayloadRequest,
    ) -> None:
        job.sealed_to[notice.please_seal.lease_id] = identity_from_proto(notice.please_seal.device)
        self._calls.post("seal_payload", SEAL_PAYLOAD, request, partial(self._sealed, job, notice.notice_id))

    def _sealed(
        self, job: SiteJob, notice_id: str, answer: site_plane_pb2.SealPayloadResponse | RelayError
    ) -> None:
        if not isinstance(answer, RelayError):
            job.sealed.set()
            return
        logger.info("the payload of job %s was not taken: %s", job.stub.id, answer)
        if answer.reason in _HOPELESS:
            self._give_up(job, answer)
        else:
            # The notice comes again for as long as the relay waits for a payload.
            job.handled.discard(notice_id)

    def _give_up(self, job: SiteJob, error: Exception) -> None:
        """End a job whose payload no device will ever get."""
        job.over = True
        job.fail(error)
        request = site_plane_pb2.CancelJobRequest(job_id=job.stub.id)
        self._calls.post("cancel_job", CANCEL_JOB, request, _ignore)

    def _fetched(
        self, job: SiteJob, notice_id: str, answer: site_plane_pb2.GetResultResponse | RelayError
    ) -> None:
        if isinstance(answer, RelayError):
            logger.warning("the result of job %s could not be read: %s", job.stub.id, answer)
            job.handled.discard(notice_id)
        else:
            self._accept(job, answer)

    def _accept(self, job: SiteJob, result: ResultMessage) -> None:
        if job.ending.done():
            return
        job.over = True
        try:
            job.finish(self._envelopes.open(job.stub, result, job.sealed_to))
        except ResultRefusedError as error:
            logger.error("%s", error)
            job.fail(error)


def _ignore(answer: object) -> None:
    del answer
