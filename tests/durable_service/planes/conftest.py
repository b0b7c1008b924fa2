from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.durable_service.durable_fixture import DurableUnderTest, serving


@pytest.fixture(params=["memory", "sqlite"])
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DurableUnderTest]:
    """A service with the protocol's own times, on a clock that stands still, on each store."""
    database = tmp_path / "tasks.db" if request.param == "sqlite" else None
    async with serving(database=database) as running:
        yield running
