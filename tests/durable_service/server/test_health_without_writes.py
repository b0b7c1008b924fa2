"""A store that can be read and not written to: no traffic is wanted until it takes writes again."""

import asyncio
import contextlib
import shutil
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from service_common.clocks import SystemClock
from tests.durable_service.durable_fixture import creation, durable_process, serving, signer_of
from tests.durable_service.raw_client import Party
from tests.durable_service.replicas.databases import KINDS, database_of
from tests.durable_service.server.test_full_disk import small_disk
from tests.harness.waiting import eventually

__all__ = ["small_disk"]

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

pytestmark = pytest.mark.process


def use_up(file: Path) -> None:
    """Leaves no room on the disk that a file is on."""
    with file.open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))
    assert shutil.disk_usage(file.parent).free == 0


class Health:
    """Asks as a load balancer does."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = health_pb2_grpc.HealthStub(channel)

    async def of(self, service: str = "") -> int:
        request = health_pb2.HealthCheckRequest(service=service)
        answer = await self._stub.Check(request, timeout=10)  # type: ignore[attr-defined]
        return int(answer.status)

    async def becomes(self, status: int) -> None:
        async def stands() -> bool:
            return await self.of() == status

        await eventually(stands, 30, f"status {status}")


async def test_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    store = f"sqlite:///{small_disk / 'tasks.db'}"
    async with (
        durable_process(tmp_path, store=store) as (_, address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        alice = Party(channel, "alice", signer_of("alice"), SystemClock().now_ms)
        health = Health(channel)
        await alice.call("CreateTask", creation("before"))
        assert await health.of() == SERVING
        use_up(small_disk / "filler")
        refusal = await alice.refused("CreateTask", creation("no-room"))
        assert refusal.reason == "STORE_UNAVAILABLE"
        await health.becomes(NOT_SERVING)
        assert await health.of("sealwork.durable.v1.TaskService") == NOT_SERVING
        assert await health.of("liveness") == SERVING
        (small_disk / "filler").unlink()
        # Without a call from anybody.
        await health.becomes(SERVING)
        assert (await alice.call("CreateTask", creation("after"))).created


@pytest.mark.parametrize("kind", KINDS)
async def test_a_database_that_takes_no_writes(kind: str, tmp_path: Path) -> None:
    with database_of(kind) as database:
        try:
            async with (
                durable_process(tmp_path, store=database.kept().setting) as (_, address),
                grpc.aio.insecure_channel(address) as channel,
            ):
                health = Health(channel)
                assert await health.of() == SERVING
                await asyncio.to_thread(database.refuse_writes)
                await health.becomes(NOT_SERVING)
                await asyncio.to_thread(database.take_writes)
                await health.becomes(SERVING)
        finally:
            database.take_writes()


async def test_a_file_that_may_only_be_read(tmp_path: Path) -> None:
    async with serving(database=tmp_path / "tasks.db") as service:
        state = service.server.state

        async def said(*, serves: bool) -> bool:
            # In small steps: a leap would cut off the question that is being answered.
            await service.clock.advance_async(100)
            return state.is_serving("") is serves

        await service.create("before")
        service.store._writing.execute("PRAGMA query_only = ON")  # type: ignore[attr-defined]
        refusal = await service.party("alice").refused("CreateTask", creation("refused"))
        assert refusal.reason == "STORE_UNAVAILABLE"
        await eventually(lambda: said(serves=False))
        service.store._writing.execute("PRAGMA query_only = OFF")  # type: ignore[attr-defined]
        await eventually(lambda: said(serves=True))
        await service.create("after")
