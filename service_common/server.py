"""Putting a gRPC server together."""

from collections.abc import Iterable

import grpc
from grpc_channelz.v1 import channelz
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from service_common.channel_options import MAX_RECEIVE_BYTES, server_options
from service_common.health import HealthServicer, ServingState


def build_server(
    interceptor: grpc.aio.ServerInterceptor,
    *,
    so_reuseport: bool = False,
    channelz_records: bool = False,
    max_receive_bytes: int = MAX_RECEIVE_BYTES,
) -> grpc.aio.Server:
    """Return a server without services or listeners.

    Args:
        interceptor: The guard of every method.
        so_reuseport: Let several processes share the port.
        channelz_records: Keep what the channelz of an admin server in this process shows.
        max_receive_bytes: Largest message taken, in bytes.
    """
    return grpc.aio.server(
        interceptors=(interceptor,),
        options=server_options(
            so_reuseport=so_reuseport, channelz=channelz_records, max_receive_bytes=max_receive_bytes
        ),
        # Most of what travels is ciphertext, which does not compress.
        compression=grpc.Compression.NoCompression,
    )


def build_admin_server(
    interceptor: grpc.aio.ServerInterceptor, state: ServingState, service_names: Iterable[str]
) -> grpc.aio.Server:
    """Return the server of an admin listener: health, reflection and channelz.

    Channelz shows every server of the process that keeps records.

    Args:
        interceptor: The guard of every method; its table has to list these.
        state: What health tells.
        service_names: Full names of the services for reflection to describe.
    """
    server = build_server(interceptor, channelz_records=True)
    add_health(server, state)
    add_reflection(server, (*service_names, "grpc.channelz.v1.Channelz"))
    channelz.add_channelz_servicer(server)
    return server


def add_health(server: grpc.aio.Server, state: ServingState) -> None:
    """Serve the standard health protocol."""
    health_pb2_grpc.add_HealthServicer_to_server(HealthServicer(state), server)


def add_reflection(server: grpc.aio.Server, service_names: Iterable[str]) -> None:
    """Describe the named services, health and reflection itself to clients that ask."""
    health_name = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
    reflection.enable_server_reflection((*service_names, health_name, reflection.SERVICE_NAME), server)
