"""The relay's methods, and signed unary calls of them."""

from collections.abc import Callable
from random import Random
from typing import Final

import grpc.aio

from relay_service.client.errors import RelayError
from sealwork.relay.v1 import daemon_plane_pb2 as daemon_plane
from sealwork.relay.v1 import site_plane_pb2 as site_plane
from service_common.clocks import Clock
from service_common.statuses import FailedCall, error_from_call
from service_common.unary_calls import (
    ATTEMPTS,
    CALL_SECONDS,
    Method,
    RequestSigner,
    UnaryCalls,
    as_it_is,
    may_help_again,
    pause_before,
)

__all__ = [
    "ATTEMPTS",
    "CALL_SECONDS",
    "Calls",
    "Method",
    "RequestSigner",
    "as_it_is",
    "may_help_again",
    "pause_before",
    "relay_error",
]

_SITE: Final = "/sealwork.relay.v1.SitePlaneService/"
_DAEMON: Final = "/sealwork.relay.v1.DaemonPlaneService/"

ENQUEUE_JOB = Method(_SITE + "EnqueueJob", site_plane.EnqueueJobRequest, site_plane.EnqueueJobResponse)
ENQUEUE_JOBS = Method(_SITE + "EnqueueJobs", site_plane.EnqueueJobsRequest, site_plane.EnqueueJobsResponse)
GET_JOB = Method(_SITE + "GetJob", site_plane.GetJobRequest, site_plane.GetJobResponse)
CANCEL_JOB = Method(_SITE + "CancelJob", site_plane.CancelJobRequest, site_plane.CancelJobResponse)
SEAL_PAYLOAD = Method(_SITE + "SealPayload", site_plane.SealPayloadRequest, site_plane.SealPayloadResponse)
LIST_NOTICES = Method(_SITE + "ListNotices", site_plane.ListNoticesRequest, site_plane.ListNoticesResponse)
GET_RESULT = Method(_SITE + "GetResult", site_plane.GetResultRequest, site_plane.GetResultResponse)
ACK_RESULTS = Method(_SITE + "AckResults", site_plane.AckResultsRequest, site_plane.AckResultsResponse)

CLAIM_JOBS = Method(_DAEMON + "ClaimJobs", daemon_plane.ClaimJobsRequest, daemon_plane.ClaimJobsResponse)
RENEW_LEASES = Method(
    _DAEMON + "RenewLeases", daemon_plane.RenewLeasesRequest, daemon_plane.RenewLeasesResponse
)
FETCH_PAYLOAD = Method(
    _DAEMON + "FetchPayload", daemon_plane.FetchPayloadRequest, daemon_plane.FetchPayloadResponse
)
COMPLETE_JOB = Method(
    _DAEMON + "CompleteJob", daemon_plane.CompleteJobRequest, daemon_plane.CompleteJobResponse
)
RELEASE_LEASES = Method(
    _DAEMON + "ReleaseLeases", daemon_plane.ReleaseLeasesRequest, daemon_plane.ReleaseLeasesResponse
)
GET_SITES = Method(_DAEMON + "GetSites", daemon_plane.GetSitesRequest, daemon_plane.GetSitesResponse)


class Calls(UnaryCalls):
    """Makes unary calls as one caller; what is refused comes as a `RelayError`.

    Every method here is idempotent, by an id in its request; a call that may not have arrived is made again.
    """

    def __init__(
        self,
        channel: Callable[[], grpc.aio.Channel],
        signer: RequestSigner,
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        """Prepare; the channel is made for the first call.

        Args:
            channel: Makes the channel.
            signer: Signs every attempt.
            clock: Times the pauses between attempts.
            random: Jitter of the pauses.
        """
        super().__init__(channel, signer, error_of=RelayError, clock=clock, random=random)


def relay_error(error: FailedCall) -> RelayError:
    """Return the error of a failed call."""
    return RelayError(error_from_call(error))
