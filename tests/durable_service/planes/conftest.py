from collections.abc import AsyncIterator

import pytest

from tests.durable_service.durable_fixture import DurableUnderTest, serving


@pytest.fixture
async def service() -> AsyncIterator[DurableUnderTest]:
    """A service with the protocol's own times, on a clock that stands still."""
    async with serving() as running:
        yield running
