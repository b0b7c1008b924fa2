"""Both stores, each with its clock in hand."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from durable_service.store.base import StoreLimits
from durable_service.store.clock import StoreClock
from durable_service.store.memory import MemoryTaskStore
from durable_service.store.sqlite import SqliteTaskStore

from .stage import Dial, Stage


@pytest.fixture(params=["memory", "sqlite"])
def store_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@asynccontextmanager
async def opened(kind: str, folder: Path, limits: StoreLimits) -> AsyncIterator[Stage]:
    dial = Dial()
    if kind == "memory":
        yield Stage(MemoryTaskStore(StoreClock(dial.wall, dial.steady), limits), dial)
        return
    store = SqliteTaskStore(folder / "tasks.db", limits=limits, wall=dial.wall, steady=dial.steady)
    yield Stage(store, dial)
    await store.close()


@pytest.fixture
async def stage(store_kind: str, tmp_path: Path) -> AsyncIterator[Stage]:
    async with opened(store_kind, tmp_path, StoreLimits()) as stage:
        yield stage


@pytest.fixture
async def short_memory(store_kind: str, tmp_path: Path) -> AsyncIterator[Stage]:
    """A store that keeps the last three entries of a journal."""
    async with opened(store_kind, tmp_path, StoreLimits(events_per_task=3)) as stage:
        yield stage
