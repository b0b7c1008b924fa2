"""The daemon plane: convert, call, convert."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import grpc.aio

from relay_service.core.model import Capability, GrantedJob, Presence
from relay_service.core.projection import ProjectedDevice
from relay_service.planes import convert, refusals
from relay_service.planes.daemon_calls import DaemonCalls
from relay_service.planes.pairing_calls import PairingCalls
from relay_service.planes.relay_parts import RelayParts
from sealwork.relay.v1 import daemon_plane_pb2, daemon_plane_pb2_grpc, pairing_pb2
from service_common.caller_identity import current_caller
from service_common.clocks import Clock

SERVICE = "sealwork.relay.v1.DaemonPlaneService"

Context = grpc.aio.ServicerContext[Any, Any]


class UnaryClaim:
    """A unary claim that waits: the claimant that dispatch grants to."""

    def __init__(
        self, device: ProjectedDevice, matrix: Sequence[Capability], most: int, request_id: str
    ) -> None:
        self.device = device
        self.matrix = tuple(matrix)
        self.kinds = frozenset(row.kind for row in matrix)
        self.request_id: str | None = request_id
        self.granted: list[GrantedJob] = []
        self.now_ms = 0
        self._granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._most = most

    @property
    def free(self) -> int:
        """One claim takes one batch."""
        return 0 if self._granted.done() else self._most

    async def grant(self, granted: Sequence[GrantedJob], now_ms: int) -> None:
        """Ends the wait."""
        self.granted.extend(granted)
        self.now_ms = now_ms
        self._end_wait()

    def _end_wait(self) -> None:
        if not self._granted.done():
            self._granted.set_result(None)

    async def wait(self, clock: Clock, seconds: float) -> None:
        """Returns when something was granted, or after that time."""
        granted = self._granted
        timer = clock.call_later(seconds, self._end_wait)
        try:
            await granted
        finally:
            timer.cancel()
            # The caller is not there any more to take what comes later.
            if not granted.done():
                granted.cancel()


class DaemonPlane(daemon_plane_pb2_grpc.DaemonPlaneServiceServicer):
    """Serves devices."""

    def __init__(self, parts: RelayParts, calls: DaemonCalls, pairing: PairingCalls) -> None:
        self._parts = parts
        self._calls = calls
        self._pairing = pairing

    # The reader and writer API of grpc.aio; the generated types know only iterators.
    async def Session(self, request_iterator: AsyncIterator[Any], context: Context) -> None:  # type: ignore[override]
        """One stream of one device."""
        await self._parts.serve_daemon(context)

    async def ClaimJobs(
        self, request: daemon_plane_pb2.ClaimJobsRequest, context: Context
    ) -> daemon_plane_pb2.ClaimJobsResponse:
        """Claims, waiting for a first job."""
        self._calls.check_claim(request)
        device = self._device()
        matrix = convert.matrix_from_proto(request.matrix)
        await self._parts.store.seen(Presence(device.runner_id, device.owner, device.identity, matrix))
        claim = UnaryClaim(device, matrix, request.max_jobs, request.request_id)
        wait_ms = convert.milliseconds_of_duration(request.wait)
        await self._parts.claim(claim, wait_ms / 1000)
        granted = [convert.granted_to_proto(job, claim.now_ms) for job in claim.granted]
        return daemon_plane_pb2.ClaimJobsResponse(granted=granted)

    async def RenewLeases(
        self, request: daemon_plane_pb2.RenewLeasesRequest, context: Context
    ) -> daemon_plane_pb2.RenewLeasesResponse:
        """One verdict per lease."""
        return await self._calls.renew_leases(current_caller(), request)

    async def FetchPayload(
        self, request: daemon_plane_pb2.FetchPayloadRequest, context: Context
    ) -> daemon_plane_pb2.FetchPayloadResponse:
        """Hands over the payload."""
        return await self._calls.fetch_payload(current_caller(), request)

    async def CompleteJob(
        self, request: daemon_plane_pb2.CompleteJobRequest, context: Context
    ) -> daemon_plane_pb2.CompleteJobResponse:
        """Stores the result."""
        return await self._calls.complete_job(current_caller(), request)

    async def ReleaseLeases(
        self, request: daemon_plane_pb2.ReleaseLeasesRequest, context: Context
    ) -> daemon_plane_pb2.ReleaseLeasesResponse:
        """Gives leases back."""
        return await self._calls.release_leases(current_caller(), request)

    async def GetSites(
        self, request: daemon_plane_pb2.GetSitesRequest, context: Context
    ) -> daemon_plane_pb2.GetSitesResponse:
        """The sites that the device's owner consents to."""
        return daemon_plane_pb2.GetSitesResponse(directory=self._calls.directory(current_caller()))

    async def StartPairing(
        self, request: pairing_pb2.StartPairingRequest, context: Context
    ) -> pairing_pb2.StartPairingResponse:
        """Begins to pair a new device."""
        return await self._pairing.start(request, context.peer())

    async def WatchPairing(
        self, request: pairing_pb2.WatchPairingRequest, context: Context
    ) -> AsyncIterator[pairing_pb2.WatchPairingResponse]:
        """How a pairing stands, until it is over."""
        async with aclosing(self._pairing.watch(request)) as responses:
            async for response in responses:
                yield response

    async def PollPairing(
        self, request: pairing_pb2.PollPairingRequest, context: Context
    ) -> pairing_pb2.PollPairingResponse:
        """How a pairing stands."""
        return await self._pairing.poll(request)

    def _device(self) -> ProjectedDevice:
        device = self._parts.projection().device(current_caller())
        if device is None:
            raise refusals.device_revoked()
        return device
