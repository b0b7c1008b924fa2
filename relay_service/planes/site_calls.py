"""What a site can ask for, alike for unary calls and calls on the session."""

from collections.abc import Callable, Iterable

from google.rpc import status_pb2

from relay_service.core.limits import JOBS_PER_CALL, LEASES_PER_CALL
from relay_service.core.model import (
    Direction,
    JobState,
    LeaseRef,
    Refusal,
    RoutedJob,
    SealedEnvelope,
)
from relay_service.core.moves import HELD
from relay_service.core.projection import ProjectedSite, Projection
from relay_service.planes import convert, refusals
from relay_service.planes.slot_questions import SlotQuestions
from relay_service.planes.validation import Checks, check_size
from relay_service.policy import Policy
from relay_service.store.base import Enqueued, RoutingStore, TooLate
from sealwork.relay.v1 import job_pb2, site_plane_pb2
from service_common.errors import ServiceError

DOMAIN = "relay.sealwork.dev"


class SiteCalls:
    """Each method: check, decide in the store, answer. The caller is proven already.

    Args:
        projection: the operator's decisions as they stand at this instant.
        on_settled: told which job ids and which notice ids a site has settled.
        on_sealed: told of the site and the job that it has sealed.
        policy: asked about each need before the store; None when consent alone decides.
    """

    def __init__(
        self,
        store: RoutingStore,
        projection: Callable[[], Projection],
        on_settled: Callable[[str, list[str], list[str]], None],
        on_sealed: Callable[[str, str], None],
        policy: Policy | None = None,
    ) -> None:
        self._store = store
        self._projection = projection
        self._on_settled = on_settled
        self._on_sealed = on_sealed
        self._policy = policy

    async def enqueue_job(
        self, site_id: str, request: site_plane_pb2.EnqueueJobRequest
    ) -> site_plane_pb2.EnqueueJobResponse:
        """Publishes one stub."""
        _check_stub("stub", request.stub)
        return await self._enqueue(site_id, request.stub, self._questions(site_id, [request.stub]))

    async def enqueue_jobs(
        self, site_id: str, request: site_plane_pb2.EnqueueJobsRequest
    ) -> site_plane_pb2.EnqueueJobsResponse:
        """Publishes several stubs, each with an answer of its own."""
        checks = Checks()
        checks.count("stubs", len(request.stubs), 1, JOBS_PER_CALL)
        if len({stub.id for stub in request.stubs}) < len(request.stubs):
            checks.fault("stubs", "must not name an id twice")
        checks.raise_faults()
        questions = self._questions(site_id, request.stubs)
        results = [
            await self._enqueue_item(site_id, index, stub, questions)
            for index, stub in enumerate(request.stubs)
        ]
        return site_plane_pb2.EnqueueJobsResponse(results=results)

    async def get_job(
        self, site_id: str, request: site_plane_pb2.GetJobRequest
    ) -> site_plane_pb2.GetJobResponse:
        """What the site may know of its job."""
        job = await self._job(site_id, request.job_id)
        response = site_plane_pb2.GetJobResponse(
            stub=convert.stub_to_proto(job.stub),
            state=convert.JOB_STATES[job.state],
            cancelled=job.cancelled,
            seal_attempts=job.seal_attempts,
        )
        # A grant that the policy has not been heard about is nobody's business yet.
        if job.claim is not None and job.state in HELD:
            response.lease_id = job.claim.lease_id
        if job.disposition is not None:
            response.disposition = convert.DISPOSITIONS[job.disposition]
        return response

    async def cancel_job(
        self, site_id: str, request: site_plane_pb2.CancelJobRequest
    ) -> site_plane_pb2.CancelJobResponse:
        """Withdraws a job; an unknown one is an answer."""
        _check_job_id(request.job_id)
        cancelled = await self._store.cancel(site_id, request.job_id)
        return site_plane_pb2.CancelJobResponse(cancelled=cancelled)

    async def seal_payload(
        self, site_id: str, request: site_plane_pb2.SealPayloadRequest
    ) -> site_plane_pb2.SealPayloadResponse:
        """Hands over the payload for the very grant it was sealed to."""
        checks = Checks()
        checks.identifier("job_id", request.job_id)
        checks.identifier("lease_id", request.lease_id)
        checks.envelope("envelope", request.envelope)
        checks.raise_faults()
        check_size(request.envelope)
        envelope = convert.envelope_from_proto(request.envelope)
        self._check_header(site_id, envelope, await self._store.now())
        lease = LeaseRef(request.job_id, request.lease_id)
        outcome = await self._store.seal(site_id, lease, envelope.recipient_key_id, envelope)
        if isinstance(outcome, TooLate):
            outcome = _same_seal(outcome, lease, envelope)
        self._on_sealed(site_id, request.job_id)
        return site_plane_pb2.SealPayloadResponse(state=convert.JOB_STATES[outcome.state])

    async def get_result(
        self, site_id: str, request: site_plane_pb2.GetResultRequest
    ) -> site_plane_pb2.GetResultResponse:
        """Reads a result; settles nothing."""
        job = await self._job(site_id, request.job_id)
        if job.state is not JobState.DONE or job.claim is None or job.result is None:
            raise refusals.result_not_ready()
        return convert.result_to_proto(job, job.claim, job.result)

    async def ack_results(
        self, site_id: str, request: site_plane_pb2.AckResultsRequest
    ) -> site_plane_pb2.AckResultsResponse:
        """Settles what the site has safely stored."""
        checks = Checks()
        checks.count("job_ids", len(request.job_ids) + len(request.notice_ids), 1, LEASES_PER_CALL)
        for field, ids in (("job_ids", request.job_ids), ("notice_ids", request.notice_ids)):
            for index, identifier in enumerate(ids[:LEASES_PER_CALL]):
                checks.identifier(f"{field}[{index}]", identifier)
        checks.raise_faults()
        settled = await self._store.acknowledge(site_id, list(request.job_ids), list(request.notice_ids))
        known = frozenset(settled)
        self._on_settled(
            site_id,
            [job_id for job_id in request.job_ids if job_id in known],
            [notice_id for notice_id in request.notice_ids if notice_id in known],
        )
        return site_plane_pb2.AckResultsResponse(settled_ids=settled)

    async def _enqueue_item(
        self, site_id: str, index: int, stub: job_pb2.JobStub, questions: SlotQuestions | None
    ) -> site_plane_pb2.EnqueueJobResult:
        try:
            _check_stub(f"stubs[{index}]", stub)
            enqueued = await self._enqueue(site_id, stub, questions)
            return site_plane_pb2.EnqueueJobResult(enqueued=enqueued)
        except ServiceError as error:
            return site_plane_pb2.EnqueueJobResult(error=_status(error))

    def _questions(self, site_id: str, stubs: Iterable[job_pb2.JobStub]) -> SlotQuestions | None:
        if self._policy is None:
            return None
        return SlotQuestions(self._policy, site_id, filter(_is_sound, stubs))

    async def _enqueue(
        self, site_id: str, stub: job_pb2.JobStub, questions: SlotQuestions | None
    ) -> site_plane_pb2.EnqueueJobResponse:
        if stub.site not in self._site(site_id).acceptable_key_ids(await self._store.now()):
            raise refusals.stub_site_mismatch()
        refusal = None if questions is None else await questions.refusal(stub)
        # A job that is there was agreed to when it came, and "not queued" would be untrue of it.
        if refusal is not None and await self._store.job(site_id, stub.id) is None:
            raise refusal
        outcome = await self._store.enqueue(site_id, convert.stub_from_proto(stub))
        if not isinstance(outcome, Enqueued):
            raise refusals.refused(outcome)
        return site_plane_pb2.EnqueueJobResponse(
            job_id=stub.id, state=convert.JOB_STATES[outcome.job.state], created=outcome.created
        )

    async def _job(self, site_id: str, job_id: str) -> RoutedJob:
        _check_job_id(job_id)
        job = await self._store.job(site_id, job_id)
        if job is None:
            raise refusals.refused(Refusal.NOT_FOUND)
        return job

    def _check_header(self, site_id: str, envelope: SealedEnvelope, now_ms: int) -> None:
        if envelope.direction is not Direction.PAYLOAD:
            raise refusals.misdirected("envelope.direction must be DIRECTION_PAYLOAD here")
        if envelope.sender_key_id not in self._site(site_id).acceptable_key_ids(now_ms):
            raise refusals.misdirected("envelope.sender_key_id must be a key id of the calling site")
        if envelope.deadline_at_ms <= now_ms:
            raise refusals.envelope_expired()

    def _site(self, site_id: str) -> ProjectedSite:
        site = self._projection().site(site_id)
        if site is None:
            # Removed between the signature check and here: from now on it has no jobs.
            raise refusals.refused(Refusal.NOT_FOUND)
        return site


def _same_seal(too_late: TooLate, lease: LeaseRef, envelope: SealedEnvelope) -> RoutedJob:
    """The job, when this is the repeat of a seal whose answer was lost."""
    was = too_late.was
    held = was is not None and was.claim is not None and was.claim.lease_id == lease.lease_id
    if was is not None and held and was.payload == envelope:
        return was
    tell = was is not None and too_late.refusal is Refusal.TOO_LATE
    raise refusals.refused(too_late.refusal, {"state": was.state.value} if tell and was else {})


def _is_sound(stub: job_pb2.JobStub) -> bool:
    try:
        _check_stub("stub", stub)
    except ServiceError:
        return False
    return True


def _check_stub(field: str, stub: job_pb2.JobStub) -> None:
    checks = Checks()
    checks.stub(field, stub)
    checks.raise_faults()


def _check_job_id(job_id: str) -> None:
    checks = Checks()
    checks.identifier("job_id", job_id)
    checks.raise_faults()


def _status(error: ServiceError) -> status_pb2.Status:
    return error.to_status(DOMAIN)
