"""A service that leaves answers every wait at once: it is asked again after pauses that grow."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import grpc.aio
import pytest

from durable_service.client.blocking import BlockingClient
from durable_service.client.calls import Calls
from durable_service.client.claimer import Claimer
from durable_service.client.client import Client
from durable_service.client.open_claims import OpenClaims
from durable_service.client.task_view import Task
from durable_service.core.definition import Driver
from sealwork.durable.v1 import task_pb2, task_service_pb2, worker_service_pb2
from service_common.clocks import ManualClock
from service_common.unary_calls import RequestSigner
from tests.durable_service.client.played_service import KEY, PLANE, WORKER
from tests.harness.waiting import eventually
from tests.service_common.scripted_server import ScriptedServer, scripted_server

WAIT_TASK = "/sealwork.durable.v1.TaskService/WaitTask"


class Widest(Random):
    """Takes the upper bound of every jitter."""

    def uniform(self, a: float, b: float) -> float:
        return b


class PassingClock(ManualClock):
    """Whoever sleeps has slept already."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 3))
        self.advance(round(seconds * 1000))


def answering(server: ScriptedServer, clock: ManualClock, *after_ms: int | None) -> list[int]:
    """Has each wait answered after that time, and the one that is answered after None has been worth it.

    Returns the milliseconds that each was to wait.
    """
    left, asked = list(after_ms), list[int]()

    def answer(body: bytes) -> bytes:
        request = task_service_pb2.WaitTaskRequest.FromString(body)
        asked.append(request.wait.ToMilliseconds())
        taken = left.pop(0)
        clock.advance(taken or 0)
        task = task_pb2.Task(task_id="t-1", state=task_pb2.TASK_STATE_RUNNING)
        return task_service_pb2.WaitTaskResponse(task=task, met=taken is None).SerializeToString()

    server.unary[WAIT_TASK] = answer
    return asked


Wait = Callable[[Client], Awaitable[tuple[Task, bool]]]


def for_ever(client: Client) -> Awaitable[tuple[Task, bool]]:
    return client.tasks.wait("t-1")


def two_seconds(client: Client) -> Awaitable[tuple[Task, bool]]:
    return client.tasks.wait("t-1", at_most_ms=2_000)


def not_at_all(client: Client) -> Awaitable[tuple[Task, bool]]:
    return client.tasks.wait("t-1", at_most_ms=0)


@pytest.mark.parametrize(
    ("wait", "after_ms", "met", "slept", "asked"),
    [
        (for_ever, [0] * 7 + [None], True, [0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0], [10_000] * 8),
        # One that took its time is asked again at once, and what was before is forgotten.
        (for_ever, [0, 0, 10_000, 5_000, 0, None], True, [0.4, 0.8, 0.4], [10_000] * 6),
        # The pauses are no waste of the time that was given, nor longer than it.
        (two_seconds, [0, 0, 0, 0], False, [0.4, 0.8, 0.8], [2_000, 1_600, 800, 0]),
        (two_seconds, [2_000], False, [], [2_000]),
        (not_at_all, [0], False, [], [0]),
    ],
)
async def test_a_wait(
    wait: Wait, after_ms: list[int | None], met: bool, slept: list[float], asked: list[int]
) -> None:
    clock = PassingClock()
    async with scripted_server(PLANE) as server:
        was_asked = answering(server, clock, *after_ms)
        async with Client(
            server.address, principal_id="alice", key=KEY, clock=clock, random=Widest()
        ) as client:
            assert (await wait(client))[1] is met
        assert (clock.slept, was_asked) == (slept, asked)


async def test_a_wait_of_a_script() -> None:
    clock, slept = ManualClock(), list[float]()

    def script(address: str) -> None:
        with BlockingClient(
            address, principal_id="alice", key=KEY, clock=clock, sleep=slept.append
        ) as client:
            client.wait("t-1")

    async with scripted_server(PLANE) as server:
        answering(server, clock, 0, 0, 0, 10_000, None)
        await asyncio.to_thread(script, server.address)
    assert len(slept) == 3
    assert all(0 <= pause <= bound for pause, bound in zip(slept, (0.4, 0.8, 1.6), strict=True))


async def test_a_worker_without_a_stream_that_asks_for_work() -> None:
    clock = ManualClock()
    async with scripted_server(PLANE) as server:
        server.unary[WORKER + "ClaimNext"] = lambda _: (
            worker_service_pb2.ClaimNextResponse().SerializeToString()
        )
        calls = Calls(
            lambda: grpc.aio.insecure_channel(server.address),
            RequestSigner("worker", KEY.signer, clock),
            clock=clock,
            random=Widest(),
        )
        claimer = Claimer(
            calls,
            OpenClaims(calls, "w-1", [Driver("report", 1)]),
            "w-1",
            free_slots=lambda: 1,
            has_stream=lambda: False,
            on_won=lambda won: pytest.fail(f"won {won}"),
            clock=clock,
            random=Widest(),
        )
        running = asyncio.ensure_future(claimer.run())
        for number, pause_ms in enumerate((400, 800, 1_600), 1):
            # It rests by the clock, and asks without it.
            await eventually(lambda: clock.pending == 1)
            assert len(server.seen("ClaimNext")) == number
            await clock.advance_async(pause_ms - 1)
            assert clock.pending == 1
            await clock.advance_async(1)
            await eventually(lambda: len(server.seen("ClaimNext")) == number + 1)  # noqa: B023
        claimer.stop()
        await running
        await calls.close()
