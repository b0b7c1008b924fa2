"""A PostgreSQL server that is killed under a store: what was confirmed stays, and the same store goes on."""

import asyncio

import pytest

from durable_service.store.base import StoreFault, StoreUnavailable
from durable_service.store.contract.scene import TENANT, Scene, creation, key
from tests.durable_service.store.postgres_fixture import PostgresServer, fresh_database, require_postgres
from tests.harness.waiting import eventually

pytestmark = pytest.mark.process


@pytest.mark.guarantee("postgresql", "What was answered outlives a kill of what keeps it")
async def test_what_was_confirmed_outlives_a_kill() -> None:
    require_postgres()
    from durable_service.store.postgres import PostgresTaskStore

    with PostgresServer() as server:
        store = await PostgresTaskStore.open(fresh_database(server))
        confirmed: list[str] = []
        enough = asyncio.Event()

        async def create(lane: int) -> None:
            for number in range(10_000):
                name = f"task-{lane}-{number}"
                try:
                    await store.create(creation(name))
                except StoreUnavailable:
                    return
                confirmed.append(name)
                if len(confirmed) == 100:
                    enough.set()

        async def is_back() -> bool:
            try:
                await store.now_ms()
            except StoreUnavailable:
                return False
            return True

        lanes = [asyncio.create_task(create(lane)) for lane in range(4)]
        await enough.wait()
        await asyncio.to_thread(server.kill)
        await asyncio.gather(*lanes)
        with pytest.raises(StoreUnavailable) as refusal:
            await store.get(key(confirmed[0]))
        assert refusal.value.fault is StoreFault.UNREACHABLE
        await asyncio.to_thread(server.start)
        await eventually(is_back, 30, "the database to be back")
        for name in confirmed:
            assert await store.get(key(name)) is not None, name
        # Writing, and the order of changes, go on.
        await Scene(store).claim(confirmed[0])
        page = await store.changes(TENANT, 0, 50_000)
        assert {record.key.task_id for _, record in page.records} >= set(confirmed)
        await store.close()
