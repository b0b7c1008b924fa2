from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.wrappers_pb2 import BytesValue
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from service_common.call_interceptor import CallInterceptor
from service_common.call_metrics import CallMetrics
from service_common.clocks import SystemClock
from service_common.health import ServingState
from service_common.listeners import Listener, bind
from service_common.method_table import CHANNELZ_METHODS, HEALTH_METHODS, REFLECTION_METHODS, MethodTable
from service_common.metrics import Metrics
from service_common.server import add_health, add_reflection, build_admin_server, build_server


def interceptor(*methods: str) -> CallInterceptor:
    listed = HEALTH_METHODS | REFLECTION_METHODS | CHANNELZ_METHODS | frozenset(methods)
    table = MethodTable(services={}, unauthenticated=listed)
    return CallInterceptor(table, CallMetrics(Metrics()), SystemClock())


async def check(channel: Any) -> health_pb2.HealthCheckResponse:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    response: health_pb2.HealthCheckResponse = await stub.Check(health_pb2.HealthCheckRequest())
    return response


@asynccontextmanager
async def started(server: grpc.aio.Server) -> AsyncIterator[Any]:
    port = bind(server, Listener("127.0.0.1:0"))
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(None)


async def listed_services(channel: Any) -> set[str]:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    call = stub.ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    response = await call.read()
    await call.done_writing()
    return {service.name for service in response.list_services_response.service}


async def test_reflection_describes_the_services_it_was_told() -> None:
    server = build_server(interceptor())
    add_reflection(server, ["grpc.channelz.v1.Channelz"])
    async with started(server) as channel:
        assert await listed_services(channel) == {
            "grpc.channelz.v1.Channelz",
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }


async def test_a_server_has_no_more_than_was_added() -> None:
    async with started(build_server(interceptor())) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await check(channel)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_health_is_served_on_a_unix_socket(tmp_unix_socket: Path) -> None:
    state = ServingState(["a"])
    state.set_ready("a", ready=True)
    server = build_server(interceptor())
    add_health(server, state)
    bind(server, Listener(f"unix:{tmp_unix_socket}"))
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{tmp_unix_socket}") as channel:
        response = await check(channel)
    await server.stop(None)
    assert response.status == health_pb2.HealthCheckResponse.SERVING


async def test_the_admin_server_shows_health_reflection_and_channelz() -> None:
    state = ServingState([])
    async with started(build_admin_server(interceptor(), state, ["a.v1.A"])) as channel:
        health = await check(channel)
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        assert await listed_services(channel) == {
            "a.v1.A",
            "grpc.channelz.v1.Channelz",
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }
        stub = channelz_pb2_grpc.ChannelzStub(channel)
        servers = await stub.GetServers(channelz_pb2.GetServersRequest(start_server_id=0))
        assert len(servers.server) >= 1


async def test_messages_up_to_8_mib_are_received_and_larger_ones_are_not() -> None:
    async def measure(request: BytesValue, context: object) -> BytesValue:
        return BytesValue(value=str(len(request.value)).encode())

    handler = grpc.unary_unary_rpc_method_handler(
        measure, BytesValue.FromString, BytesValue.SerializeToString
    )
    server = build_server(interceptor("/t.S/Measure"))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.S", {"Measure": handler}),))
    async with started(server) as channel:
        call = channel.unary_unary("/t.S/Measure")
        # Tag, length and content: 8 MiB exactly on the wire.
        largest = BytesValue(value=bytes(8_388_608 - 5)).SerializeToString()
        assert len(largest) == 8_388_608
        assert await call(largest) == b"\x0a\x078388603"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(largest + b"\x00")
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
