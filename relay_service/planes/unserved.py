"""Planes that are described and not served by this version: every method says so."""

from typing import Any

import grpc.aio

from relay_service.planes.refusals import not_implemented
from sealwork.relay.v1 import control_plane_pb2, control_plane_pb2_grpc
from service_common.errors import ServiceError

Context = grpc.aio.ServicerContext[Any, Any]


class UnservedControlPlane(control_plane_pb2_grpc.ControlPlaneServiceServicer):
    """The control plane, for a relay whose projection is a file."""

    async def GetProjection(
        self, request: control_plane_pb2.GetProjectionRequest, context: Context
    ) -> control_plane_pb2.GetProjectionResponse:
        """Not served."""
        raise _edit_the_file()

    async def ReplaceProjection(
        self, request: control_plane_pb2.ReplaceProjectionRequest, context: Context
    ) -> control_plane_pb2.ReplaceProjectionResponse:
        """Not served."""
        raise _edit_the_file()

    # A coroutine and no generator, which needs something to yield.
    async def WatchProjection(  # type: ignore[override]
        self, request: control_plane_pb2.WatchProjectionRequest, context: Context
    ) -> None:
        """Not served."""
        raise _edit_the_file()

    async def ListPairings(
        self, request: control_plane_pb2.ListPairingsRequest, context: Context
    ) -> control_plane_pb2.ListPairingsResponse:
        """Not served."""
        raise _edit_the_file()

    async def ApprovePairing(
        self, request: control_plane_pb2.ApprovePairingRequest, context: Context
    ) -> control_plane_pb2.ApprovePairingResponse:
        """Not served."""
        raise _edit_the_file()

    async def DenyPairing(
        self, request: control_plane_pb2.DenyPairingRequest, context: Context
    ) -> control_plane_pb2.DenyPairingResponse:
        """Not served."""
        raise _edit_the_file()


def _edit_the_file() -> ServiceError:
    return not_implemented("this relay takes its decisions from a projection file; edit that file")
