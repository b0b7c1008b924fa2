"""What a device can ask for, alike for unary calls and calls on the session."""

from collections.abc import Callable, Sequence

from relay_service.core.limits import CLAIM_MAXIMUM, MAXIMUM_WAIT_MS
from relay_service.core.model import Direction, LeaseRef, Refusal, Verdict
from relay_service.core.projection import ProjectedDevice, Projection
from relay_service.planes import convert, refusals
from relay_service.planes.validation import Checks, check_size
from relay_service.store.base import Completed, RoutingStore
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_directory_pb2


class DaemonCalls:
    """Each method: check, decide in the store, answer. The caller is proven already.

    Args:
        projection: the operator's decisions as they stand at this instant.
        lease_ms: length of a lease granted or renewed.
        on_freed: told of a device that holds fewer jobs than before.
    """

    def __init__(
        self,
        store: RoutingStore,
        projection: Callable[[], Projection],
        *,
        lease_ms: int,
        on_freed: Callable[[str], None],
    ) -> None:
        self._store = store
        self._on_freed = on_freed
        self._projection = projection
        self._lease_ms = lease_ms

    async def renew(self, runner_id: str, leases: Sequence[job_pb2.LeaseRef]) -> Sequence[Verdict]:
        """One verdict per lease, in order."""
        checks = Checks()
        checks.leases("leases", leases)
        checks.raise_faults()
        named = convert.lease_refs_from_proto(leases)
        return await self._store.renew_leases(runner_id, named, self._lease_ms)

    async def renew_leases(
        self, runner_id: str, request: daemon_plane_pb2.RenewLeasesRequest
    ) -> daemon_plane_pb2.RenewLeasesResponse:
        """The unary twin of a renewal."""
        verdicts = await self.renew(runner_id, request.leases)
        return daemon_plane_pb2.RenewLeasesResponse(
            verdicts=[convert.verdict_to_proto(verdict) for verdict in verdicts]
        )

    async def fetch_payload(
        self, runner_id: str, request: daemon_plane_pb2.FetchPayloadRequest
    ) -> daemon_plane_pb2.FetchPayloadResponse:
        """Hands over the payload."""
        checks = Checks()
        checks.lease("lease", request.lease)
        checks.raise_faults()
        outcome = await self._store.take_payload(runner_id, convert.lease_ref_from_proto(request.lease))
        if isinstance(outcome, Refusal):
            raise refusals.refused(outcome)
        return daemon_plane_pb2.FetchPayloadResponse(envelope=convert.envelope_to_proto(outcome))

    async def complete_job(
        self, runner_id: str, request: daemon_plane_pb2.CompleteJobRequest
    ) -> daemon_plane_pb2.CompleteJobResponse:
        """Stores the result; the first one stays."""
        checks = Checks()
        checks.lease("lease", request.lease)
        checks.envelope("envelope", request.envelope)
        if request.disposition not in convert.DISPOSITION_OF:
            checks.fault("disposition", "must be one of the named dispositions")
        checks.raise_faults()
        check_size(request.envelope)
        lease = convert.lease_ref_from_proto(request.lease)
        envelope = convert.envelope_from_proto(request.envelope)
        await self._check_header(runner_id, lease, request.envelope)
        outcome = await self._store.complete(
            runner_id, lease, envelope, convert.DISPOSITION_OF[request.disposition]
        )
        if not isinstance(outcome, Completed):
            raise refusals.refused(outcome)
        if outcome.accepted:
            self._on_freed(runner_id)
        return daemon_plane_pb2.CompleteJobResponse(accepted=outcome.accepted, duplicate=outcome.duplicate)

    async def release_leases(
        self, runner_id: str, request: daemon_plane_pb2.ReleaseLeasesRequest
    ) -> daemon_plane_pb2.ReleaseLeasesResponse:
        """Gives leases back."""
        checks = Checks()
        checks.leases("leases", request.leases)
        if request.reason not in convert.RELEASE_REASON_OF:
            checks.fault("reason", "must be one of the named reasons")
        checks.raise_faults()
        released = await self._store.release_leases(
            runner_id,
            convert.lease_refs_from_proto(request.leases),
            convert.RELEASE_REASON_OF[request.reason],
        )
        if released:
            self._on_freed(runner_id)
        return daemon_plane_pb2.ReleaseLeasesResponse(job_ids=released)

    def directory(self, runner_id: str) -> site_directory_pb2.SiteDirectory:
        """Every site that the device's owner consents to, paused ones included."""
        return directory_of(self._projection(), self._device(runner_id).owner)

    @staticmethod
    def check_claim(request: daemon_plane_pb2.ClaimJobsRequest) -> None:
        """Raises FIELD_INVALID with every fault of a claim."""
        checks = Checks()
        checks.identifier("request_id", request.request_id)
        checks.matrix("matrix", request.matrix)
        checks.count("max_jobs", request.max_jobs, 1, CLAIM_MAXIMUM)
        checks.span("wait", request.wait, 0, MAXIMUM_WAIT_MS)
        checks.raise_faults()

    async def _check_header(self, runner_id: str, lease: LeaseRef, envelope: job_pb2.SealedEnvelope) -> None:
        if envelope.direction != convert.DIRECTIONS[Direction.RESULT]:
            raise refusals.misdirected("envelope.direction must be DIRECTION_RESULT here")
        if envelope.sender_key_id != self._device(runner_id).identity.key_id:
            raise refusals.misdirected("envelope.sender_key_id must be the calling device's key id")
        now_ms = await self._store.now()
        if convert.milliseconds_of(envelope.deadline_time) <= now_ms:
            raise refusals.envelope_expired()
        for granted in await self._store.held(runner_id):
            if granted.lease_id == lease.lease_id:
                site = self._projection().site(granted.site_id)
                keys = site.acceptable_key_ids(now_ms) if site is not None else frozenset[str]()
                if envelope.recipient_key_id not in {granted.stub.site, *keys}:
                    raise refusals.misdirected("envelope.recipient_key_id must be the stub's site")
        # A lease that is not held any more is the store's to judge: duplicate, stale or unknown.

    def _device(self, runner_id: str) -> ProjectedDevice:
        device = self._projection().device(runner_id)
        if device is None or device.revoked:
            # Removed between the signature check and here.
            raise refusals.device_revoked()
        return device


def directory_of(projection: Projection, owner: str) -> site_directory_pb2.SiteDirectory:
    """The sites of an owner, as a device may know them."""
    directory = site_directory_pb2.SiteDirectory()
    for consented in projection.sites_for(owner):
        site = consented.site
        entry = directory.sites.add(
            key_id=site.identity.key_id,
            identity=convert.identity_to_proto(site.identity),
            awaiting_consent=consented.awaiting_consent,
        )
        for link in site.succeeds:
            entry.succeeds.add(identity=convert.identity_to_proto(link.identity), signature=link.signature)
        if site.retiring_until_ms is not None:
            entry.retiring_until_time.CopyFrom(convert.timestamp_of(site.retiring_until_ms))
    return directory
