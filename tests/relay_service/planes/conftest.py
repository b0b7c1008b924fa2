from collections.abc import AsyncIterator

import pytest

from tests.relay_service.relay_fixture import RelayUnderTest, serving


@pytest.fixture
async def relay() -> AsyncIterator[RelayUnderTest]:
    """A relay with the protocol's own times, on a clock that stands still."""
    async with serving() as running:
        yield running
