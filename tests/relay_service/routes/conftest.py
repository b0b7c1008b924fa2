from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.relay_service.relay_fixture import RelayUnderTest, serving
from tests.relay_service.store.valkey_fixture import TcpServer, empty, require_valkey


@pytest.fixture
async def relay() -> AsyncIterator[RelayUnderTest]:
    """One relay on the memory store, on a clock that stands still."""
    async with serving() as running:
        yield running


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TcpServer]:
    """One server for all tests here."""
    require_valkey()
    server = TcpServer(Path(tmp_path_factory.mktemp("valkey")))
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["one relay", "two relays"])
async def any_relay(request: pytest.FixtureRequest) -> AsyncIterator[RelayUnderTest]:
    """One relay on the memory store; then two on Valkey, with sites at one and devices at the other."""
    if request.param == "one relay":
        async with serving() as running:
            yield running
        return
    server: TcpServer = request.getfixturevalue("valkey")
    from tests.relay_service.replicas.two_relays import two_relays

    empty(server.url)
    async with two_relays(server.url) as both:
        yield both
