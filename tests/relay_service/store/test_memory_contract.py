"""The memory store passes the contract."""

from dataclasses import dataclass, field
from itertools import count

import pytest

from relay_service.store.contract import CONTRACT_QUOTAS, RoutingStoreContract
from relay_service.store.memory import MemoryRoutingStore


@dataclass
class MemoryHarness:
    now_ms: int = 1_700_000_000_000
    store: MemoryRoutingStore = field(init=False)

    def __post_init__(self) -> None:
        numbers = count(1)
        self.store = MemoryRoutingStore(
            lambda: self.now_ms, lambda: f"lease-{next(numbers)}", CONTRACT_QUOTAS
        )

    async def advance(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    async def delivered(self) -> None:
        """The store tells its listeners before it answers."""

    async def spoil_stub(self, site_id: str, job_id: str) -> bool:
        return False


@pytest.fixture
def store_harness() -> MemoryHarness:
    return MemoryHarness()


class TestMemoryRoutingStore(RoutingStoreContract):
    pass
