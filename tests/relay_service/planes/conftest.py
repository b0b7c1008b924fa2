from collections.abc import AsyncIterator

import pytest

from tests.relay_service.relay_fixture import RelayUnderTest, Serve, serving


@pytest.fixture
def serve() -> Serve:
    """One relay on the memory store, the way a test wants it."""
    return serving


@pytest.fixture
async def relay(serve: Serve) -> AsyncIterator[RelayUnderTest]:
    """A relay with the protocol's own times, on a clock that stands still."""
    async with serve() as running:
        yield running
