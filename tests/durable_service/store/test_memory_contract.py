"""The memory store passes the contract."""

from dataclasses import dataclass, field

import pytest

from durable_service.store.clock import StoreClock
from durable_service.store.contract import CONTRACT_LIMITS, TaskStoreContract
from durable_service.store.memory import MemoryTaskStore


@dataclass
class MemoryHarness:
    now_ms: int = 1_700_000_000_000
    store: MemoryTaskStore = field(init=False)

    def __post_init__(self) -> None:
        clock = StoreClock(lambda: self.now_ms, lambda: self.now_ms)
        self.store = MemoryTaskStore(clock, CONTRACT_LIMITS)

    async def advance(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    async def reopen(self) -> bool:
        return False


@pytest.fixture
def store_harness() -> MemoryHarness:
    return MemoryHarness()


class TestMemoryTaskStore(TaskStoreContract):
    pass
