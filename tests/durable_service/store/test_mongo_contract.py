"""The MongoDB store passes the contract, on a server that runs as a process of its own."""

import time
from collections.abc import AsyncIterator

import pytest

from durable_service.store.contract import CONTRACT_LIMITS, TaskStoreContract
from tests.durable_service.store.mongo_fixture import MISSING, MongoServer, fresh_database

if not MISSING:
    from durable_service.store.mongo import MongoTaskStore


class MongoHarness:
    """A store in a database of its own; the server's clock stands until it is advanced."""

    store: "MongoTaskStore"

    def __init__(self, server: MongoServer) -> None:
        self.server = server
        self.url = fresh_database(server)
        self.now_ms = time.time_ns() // 1_000_000

    async def start(self) -> None:
        self.server.hold_clock(self.now_ms)
        self.store = await MongoTaskStore.open(self.url, CONTRACT_LIMITS)

    async def advance(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.server.hold_clock(self.now_ms)

    async def reopen(self) -> bool:
        await self.store.close()
        self.store = await MongoTaskStore.open(self.url, CONTRACT_LIMITS)
        return True


@pytest.fixture
async def store_harness(mongo_server: MongoServer) -> AsyncIterator[MongoHarness]:
    harness = MongoHarness(mongo_server)
    try:
        await harness.start()
        yield harness
        await harness.store.close()
    finally:
        mongo_server.hold_clock(0)


class TestMongoTaskStore(TaskStoreContract):
    pass
