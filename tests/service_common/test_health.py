import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from service_common.call_interceptor import CallInterceptor
from service_common.call_metrics import CallMetrics
from service_common.clocks import SystemClock
from service_common.health import LIVENESS, ServingState
from service_common.listeners import Listener, bind
from service_common.method_table import HEALTH_METHODS, MethodTable
from service_common.metrics import Metrics
from service_common.server import add_health, build_server

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


@pytest.fixture
def state() -> ServingState:
    return ServingState(["a.v1.A", "b.v1.B"])


@pytest.fixture
async def stub(state: ServingState) -> AsyncIterator[Any]:
    table = MethodTable(services={}, unauthenticated=HEALTH_METHODS)
    server = build_server(CallInterceptor(table, CallMetrics(Metrics()), SystemClock()))
    add_health(server, state)
    port = bind(server, Listener("127.0.0.1:0"))
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield health_pb2_grpc.HealthStub(channel)
    await server.stop(None)


def request(service: str) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=service)


def test_nothing_serves_before_it_was_said_to_be_ready(state: ServingState) -> None:
    assert state.is_serving("a.v1.A") is False
    assert state.is_serving("") is False
    assert state.is_serving(LIVENESS) is True
    assert state.is_serving("c.v1.C") is None


def test_the_empty_name_stands_for_all(state: ServingState) -> None:
    state.set_ready("a.v1.A", ready=True)
    assert state.is_serving("a.v1.A") is True
    assert state.is_serving("") is False
    state.set_ready("b.v1.B", ready=True)
    assert state.is_serving("") is True


def test_readiness_of_a_service_that_is_not_known(state: ServingState) -> None:
    with pytest.raises(KeyError):
        state.set_ready("c.v1.C", ready=True)


def test_what_is_news(state: ServingState) -> None:
    assert state.set_ready("a.v1.A", ready=True) is True
    assert state.set_ready("a.v1.A", ready=True) is False
    assert state.set_ready("a.v1.A", ready=False) is True


def test_a_late_event_loop_takes_everything_out_of_service_but_life(state: ServingState) -> None:
    state.set_ready("a.v1.A", ready=True)
    state.set_lagging(lagging=True)
    assert state.is_serving("a.v1.A") is False
    assert state.is_serving(LIVENESS) is True
    state.set_lagging(lagging=False)
    assert state.is_serving("a.v1.A") is True


def test_a_shutdown_is_for_good(state: ServingState) -> None:
    state.set_ready("a.v1.A", ready=True)
    state.begin_shutdown()
    state.set_ready("a.v1.A", ready=True)
    state.set_lagging(lagging=False)
    assert state.is_serving("a.v1.A") is False


async def test_check_tells_the_state(state: ServingState, stub: Any) -> None:
    assert (await stub.Check(request("a.v1.A"))).status == NOT_SERVING
    state.set_ready("a.v1.A", ready=True)
    assert (await stub.Check(request("a.v1.A"))).status == SERVING
    assert (await stub.Check(request(LIVENESS))).status == SERVING
    assert (await stub.Check(request(""))).status == NOT_SERVING


async def test_check_of_an_unknown_service_is_not_found(stub: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Check(request("c.v1.C"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_watch_tells_changes_and_nothing_else(state: ServingState, stub: Any) -> None:
    watch = stub.Watch(request("a.v1.A"))
    assert (await watch.read()).status == NOT_SERVING
    # A change of another service is none of this one's.
    state.set_ready("b.v1.B", ready=True)
    state.set_ready("a.v1.A", ready=True)
    assert (await watch.read()).status == SERVING
    state.set_lagging(lagging=True)
    assert (await watch.read()).status == NOT_SERVING
    watch.cancel()


async def test_watch_of_an_unknown_service_waits_for_it(stub: Any) -> None:
    watch = stub.Watch(request("c.v1.C"))
    assert (await watch.read()).status == SERVICE_UNKNOWN
    watch.cancel()


async def test_a_shutdown_is_told_and_then_the_watch_ends(state: ServingState, stub: Any) -> None:
    state.set_ready("a.v1.A", ready=True)
    watch = stub.Watch(request("a.v1.A"))
    assert (await watch.read()).status == SERVING
    state.begin_shutdown()
    assert (await watch.read()).status == NOT_SERVING
    state.close()
    assert await asyncio.wait_for(watch.code(), 10) is grpc.StatusCode.UNAVAILABLE
