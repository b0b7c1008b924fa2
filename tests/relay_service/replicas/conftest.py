from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.relay_service.relay_fixture import RelayUnderTest, Serve
from tests.relay_service.store.valkey_fixture import TcpServer, empty, require_valkey


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TcpServer]:
    """One server for all tests here."""
    require_valkey()
    server = TcpServer(Path(tmp_path_factory.mktemp("valkey")))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def serve(valkey: TcpServer) -> Serve:
    """Two relays on one server that holds nothing yet, the way a test wants them."""
    from tests.relay_service.replicas.two_relays import two_relays

    def two(*args: Any, **options: Any) -> AbstractAsyncContextManager[RelayUnderTest]:
        empty(valkey.url)
        return two_relays(valkey.url, *args, **options)

    return two


@pytest.fixture
async def relay(serve: Serve) -> AsyncIterator[RelayUnderTest]:
    """Two relays with the protocol's own times, on a clock that stands still."""
    async with serve() as running:
        yield running
