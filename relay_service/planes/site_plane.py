"""The site plane: convert, call, convert."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc.aio

from relay_service.core.limits import MAXIMUM_WAIT_MS
from relay_service.core.model import Notice
from relay_service.planes import convert, refusals
from relay_service.planes.notices import notice_to_proto
from relay_service.planes.relay_parts import RelayParts
from relay_service.planes.site_calls import SiteCalls
from relay_service.planes.validation import Checks
from sealwork.relay.v1 import site_plane_pb2, site_plane_pb2_grpc
from service_common.caller_identity import current_caller

SERVICE = "sealwork.relay.v1.SitePlaneService"

_DEFAULT_PAGE = 100
_MOST_A_PAGE = 500

Context = grpc.aio.ServicerContext[Any, Any]


class SitePlane(site_plane_pb2_grpc.SitePlaneServiceServicer):
    """Serves sites."""

    def __init__(self, parts: RelayParts, calls: SiteCalls) -> None:
        self._parts = parts
        self._calls = calls

    # The reader and writer API of grpc.aio; the generated types know only iterators.
    async def Session(self, request_iterator: AsyncIterator[Any], context: Context) -> None:  # type: ignore[override]
        """One stream of one site process."""
        await self._parts.serve_site(context)

    async def EnqueueJob(
        self, request: site_plane_pb2.EnqueueJobRequest, context: Context
    ) -> site_plane_pb2.EnqueueJobResponse:
        """Publishes a stub."""
        return await self._calls.enqueue_job(current_caller(), request)

    async def EnqueueJobs(
        self, request: site_plane_pb2.EnqueueJobsRequest, context: Context
    ) -> site_plane_pb2.EnqueueJobsResponse:
        """Publishes several stubs."""
        return await self._calls.enqueue_jobs(current_caller(), request)

    async def GetJob(
        self, request: site_plane_pb2.GetJobRequest, context: Context
    ) -> site_plane_pb2.GetJobResponse:
        """Reads one job."""
        return await self._calls.get_job(current_caller(), request)

    async def CancelJob(
        self, request: site_plane_pb2.CancelJobRequest, context: Context
    ) -> site_plane_pb2.CancelJobResponse:
        """Withdraws a job."""
        return await self._calls.cancel_job(current_caller(), request)

    async def SealPayload(
        self, request: site_plane_pb2.SealPayloadRequest, context: Context
    ) -> site_plane_pb2.SealPayloadResponse:
        """Hands over the payload."""
        return await self._calls.seal_payload(current_caller(), request)

    async def ListNotices(
        self, request: site_plane_pb2.ListNoticesRequest, context: Context
    ) -> site_plane_pb2.ListNoticesResponse:
        """Reads the inbox, waiting for a first row."""
        checks = Checks()
        checks.count("page_size", request.page_size, 0, _MOST_A_PAGE)
        checks.span("wait", request.wait, 0, MAXIMUM_WAIT_MS)
        checks.raise_faults()
        after = _position(request.page_token)
        size = request.page_size or _DEFAULT_PAGE
        rows = await self._rows(after, size, convert.milliseconds_of_duration(request.wait) / 1000)
        now_ms = await self._parts.store.now()
        return site_plane_pb2.ListNoticesResponse(
            notices=[notice_to_proto(row, now_ms) for row in rows],
            next_page_token=str(rows[-1].sequence if rows else after),
        )

    async def GetResult(
        self, request: site_plane_pb2.GetResultRequest, context: Context
    ) -> site_plane_pb2.GetResultResponse:
        """Reads a sealed result."""
        return await self._calls.get_result(current_caller(), request)

    async def AckResults(
        self, request: site_plane_pb2.AckResultsRequest, context: Context
    ) -> site_plane_pb2.AckResultsResponse:
        """Settles what the site has stored."""
        return await self._calls.ack_results(current_caller(), request)

    async def _rows(self, after: int, size: int, seconds: float) -> Sequence[Notice]:
        site_id = current_caller()
        rows = await self._parts.store.notices(site_id, after, size)
        if rows or seconds <= 0:
            return rows

        async def came_meanwhile() -> bool:
            return bool(await self._parts.store.notices(site_id, after, 1))

        await self._parts.wait_for_notice(site_id, seconds, came_meanwhile)
        return await self._parts.store.notices(site_id, after, size)


def _position(token: str) -> int:
    """The sequence that a page token stands for."""
    if not token:
        return 0
    if not (token.isascii() and token.isdigit() and len(token) <= 19):
        raise refusals.page_token_invalid()
    return int(token)
