"""Random histories: the PostgreSQL store answers as the memory store does, also after it was opened again."""

from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis.stateful import rule
from hypothesis.strategies import sampled_from

from durable_service.store.base import TaskStore
from tests.durable_service.store import test_stores_agree as sqlite
from tests.durable_service.store.postgres_fixture import (
    PostgresServer,
    fresh_database,
    move_clock,
    require_postgres,
    stop_clock,
)

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


class PostgresAgreement(sqlite.Agreement):
    """What the SQLite store is in the other test, this one is here."""

    server: ClassVar[PostgresServer]
    # Positions are numbers of transactions.
    numbers_changes_alike = False

    def __init__(self) -> None:
        self.url = fresh_database(self.server)
        self.stopped = False
        super().__init__()

    def opened(self) -> TaskStore:
        return self.loop.run_until_complete(self.open())

    async def open(self) -> TaskStore:
        # An extra, without which the test says that it is not there.
        from durable_service.store.postgres import PostgresTaskStore

        if not self.stopped:
            await (await PostgresTaskStore.open(self.url, size=1)).close()
            stop_clock(self.url)
            self.stopped = True
        store = await PostgresTaskStore.open(self.url, limits=sqlite.LIMITS)
        store.listen(self.heard[1].append)
        return store

    @rule(ms=sampled_from([1, 40, 100, 1_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        move_clock(self.url, ms)


class TestPostgresAgreement(PostgresAgreement.TestCase):  # type: ignore[valid-type,misc]
    settings = settings(max_examples=4, stateful_step_count=30, deadline=None)

    @classmethod
    def setUpClass(cls) -> None:
        require_postgres()
        PostgresAgreement.server = PostgresServer(durable=False)
        PostgresAgreement.server.start()
        cls.addClassCleanup(PostgresAgreement.server.remove)
