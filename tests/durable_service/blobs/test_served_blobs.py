"""Artifacts of a service on a shared database: put by one process, read and purged by another."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from durable_service.store.clock import wall_ms
from sealwork.durable.v1 import lease_pb2
from tests.durable_service.durable_fixture import creation, durable_process, signer_of
from tests.durable_service.planes.every_method import header
from tests.durable_service.planes.test_records import chunk
from tests.durable_service.raw_client import Party
from tests.durable_service.store import mongo_fixture, postgres_fixture
from tests.durable_service.store.postgres_fixture import postgres_server

__all__ = ["postgres_server"]

pytestmark = pytest.mark.process

DATA = bytes(range(256)) * 1_000


@pytest.fixture(params=["postgres", "mongo"])
def store(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database."""
    if request.param == "postgres":
        return postgres_fixture.fresh_database(request.getfixturevalue("postgres_server"))
    return mongo_fixture.fresh_database(request.getfixturevalue("mongo_server"))


@asynccontextmanager
async def served(folder: Path, store: str) -> AsyncIterator[dict[str, Party]]:
    """The parties of a process that serves this store."""
    async with (
        durable_process(folder, "--retention", "0s", store=store) as (_, address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        yield {name: Party(channel, name, signer_of(name), wall_ms) for name in ("alice", "worker", "admin")}


async def artifact(party: Party) -> bytes:
    async with party.watch("GetArtifact", task_id="task", artifact_id="artifact") as frames:
        return b"".join([part.chunk async for part in frames])


async def test_another_process_has_them_too(tmp_path: Path, store: str) -> None:
    async with served(tmp_path, store) as first, served(tmp_path, store) as second:
        await first["alice"].call("CreateTask", creation())
        claimed = await first["worker"].call(
            "ClaimTask", task_id="task", claim_id="claim", worker_id="worker-1"
        )
        lease = lease_pb2.LeaseRef(task_id="task", worker_id="worker-1", fence=claimed.claimed.lease.fence)
        parts = [chunk(DATA[start : start + 65_536]) for start in range(0, len(DATA), 65_536)]
        await first["worker"].upload("PutArtifact", [header(lease, DATA), *parts])
        assert await artifact(second["alice"]) == DATA

        await second["worker"].call("CompleteTask", lease=lease)
        purged = await second["admin"].call("PurgeTasks", task_ids=["task"])
        assert list(purged.purged_task_ids) == ["task"]
        refusal = await first["alice"].refused("GetTask", task_id="task")
        assert refusal.reason == "TASK_NOT_FOUND"
    assert await kept(store) == 0


async def kept(store: str) -> int:
    """How many artifacts the database holds."""
    if store.startswith("mongodb"):
        from pymongo import AsyncMongoClient

        async with AsyncMongoClient[dict[str, object]](store) as client:
            return await client.get_default_database()["durable_artifacts"].count_documents({})
    import psycopg

    async with await psycopg.AsyncConnection.connect(store) as connection:
        cursor = await connection.execute("SELECT count(*) FROM durable_blobs")
        row = await cursor.fetchone()
    assert row is not None
    return int(row[0])
