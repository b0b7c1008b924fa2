"""Signals to a real server process, on both kinds of event loop."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from service_common.statuses import error_from_call
from tests.harness.processes import RunningProcess, running

pytestmark = [
    pytest.mark.process,
    pytest.mark.parametrize("loop", ["uvloop", "asyncio"]),
]

CHILD = Path(__file__).with_name("drain_child.py")
REPOSITORY = Path(__file__).parents[2]


@asynccontextmanager
async def server(loop: str, ending: str) -> AsyncIterator[tuple[RunningProcess, Any]]:
    argv = [sys.executable, str(CHILD), loop, ending]
    search = {"PYTHONPATH": str(REPOSITORY)}
    async with running(argv, env=search, cwd=REPOSITORY, ready=r"^ready (\d+)$") as process:
        assert process.ready is not None
        async with grpc.aio.insecure_channel(f"127.0.0.1:{process.ready[1]}") as channel:
            yield process, channel


async def test_sigterm_ends_the_process_with_status_0(loop: str) -> None:
    async with server(loop, "ends") as (process, _channel):
        process.terminate()
        assert await process.wait() == 0
        assert "ending" in process.stdout
        assert process.stdout[-1] == "stopped"


async def test_sigint_ends_it_as_well(loop: str) -> None:
    async with server(loop, "ends") as (process, _channel):
        os.kill(process.pid, signal.SIGINT)
        assert await process.wait() == 0
        assert process.stdout[-1] == "stopped"


async def test_a_call_in_flight_is_answered(loop: str) -> None:
    async with server(loop, "ends") as (process, channel):
        call = channel.unary_unary("/t.S/Hold")(b"", metadata=(("sealwork-protocol", "1"),), timeout=30)
        await process.wait_line("^held$")
        process.terminate()
        assert await call == b"answered"
        assert await process.wait() == 0


async def test_while_sessions_end_calls_are_served_and_new_sessions_are_not(loop: str) -> None:
    async with server(loop, "released") as (process, channel):
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="t.S"))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        process.terminate()
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        await process.wait_line("^ending$")
        session = channel.stream_stream("/t.S/Session")()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await session.read()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert error_from_call(caught.value).reason == "SERVER_DRAINING"
        # The open watch does not hold up the end: of its minute of grace the process needs next to none.
        metadata = (("sealwork-protocol", "1"),)
        await channel.unary_unary("/t.S/Release")(b"", metadata=metadata, timeout=30)
        assert await process.wait() == 0
        assert process.stdout[-1] == "stopped"


@pytest.mark.parametrize("ending", ["hanging", "stuck"])
async def test_a_second_sigterm_exits_at_once(loop: str, ending: str) -> None:
    """Also when the event loop itself stands still."""
    async with server(loop, ending) as (process, _channel):
        process.terminate()
        await process.wait_line("^ending$")
        process.terminate()
        assert await process.wait() == 1
        assert "stopped" not in process.stdout
