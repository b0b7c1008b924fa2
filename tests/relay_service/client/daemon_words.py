"""What tests have a relay say to a device: verdicts, refusals, directories."""

from typing import Any

import grpc

from relay_service.client.wire import identity_to_proto
from relay_service.core.model import Audience
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_directory_pb2
from service_common.errors import ServiceError
from tests.relay_service.client.real_relay import (
    GENERATE,
)

TEAM = type(GENERATE)("llm.generate", "desk", "llamacpp", "http", "small", Audience.TEAM)
ACTIVE = job_pb2.LEASE_STATE_ACTIVE
CANCEL_REQUESTED = job_pb2.LEASE_STATE_CANCEL_REQUESTED
LOST = job_pb2.LEASE_STATE_LOST


def refusal(
    reason: str, code: grpc.StatusCode = grpc.StatusCode.FAILED_PRECONDITION, **more: Any
) -> ServiceError:
    return ServiceError(code, reason, "no", **more)


def directory(*sites: site_directory_pb2.ConsentedSite) -> Any:
    sites_message = site_directory_pb2.SiteDirectory(sites=sites)
    return daemon_plane_pb2.GetSitesResponse(directory=sites_message).SerializeToString


def consented(keys: Any, **more: Any) -> site_directory_pb2.ConsentedSite:
    return site_directory_pb2.ConsentedSite(
        key_id=keys.key_id, identity=identity_to_proto(keys.public), **more
    )
