"""The SQLite store passes the contract."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from durable_service.store.contract import CONTRACT_LIMITS, TaskStoreContract
from durable_service.store.sqlite import SqliteTaskStore


@dataclass
class SqliteHarness:
    database: Path
    now_ms: int = 1_700_000_000_000
    store: SqliteTaskStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = self.open()

    def open(self) -> SqliteTaskStore:
        return SqliteTaskStore(
            self.database, limits=CONTRACT_LIMITS, wall=lambda: self.now_ms, steady=lambda: self.now_ms
        )

    async def advance(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    async def reopen(self) -> bool:
        await self.store.close()
        self.store = self.open()
        return True


@pytest.fixture
async def store_harness(tmp_path: Path) -> AsyncIterator[SqliteHarness]:
    harness = SqliteHarness(tmp_path / "tasks.db")
    yield harness
    await harness.store.close()


class TestSqliteTaskStore(TaskStoreContract):
    pass
