"""The PostgreSQL store passes the contract."""

from collections.abc import AsyncIterator

import pytest

from durable_service.store.contract import TaskStoreContract
from tests.durable_service.store.postgres_fixture import PostgresHarness, PostgresServer, postgres_server

__all__ = ["postgres_server"]

pytestmark = pytest.mark.process


@pytest.fixture
async def store_harness(postgres_server: PostgresServer) -> AsyncIterator[PostgresHarness]:
    harness = PostgresHarness(postgres_server)
    await harness.start()
    yield harness
    await harness.store.close()


class TestPostgresTaskStore(TaskStoreContract):
    pass
