"""The Valkey store passes the contract, over TCP on a cluster's terms and on the embedded server."""

from collections.abc import AsyncIterator, Iterator

import pytest

from relay_service.store.contract import RoutingStoreContract

from .valkey_fixture import TcpServer, ValkeyHarness, require_valkey


@pytest.fixture(scope="module")
def tcp_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TcpServer]:
    require_valkey()
    server = TcpServer(tmp_path_factory.mktemp("valkey-tcp"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
async def embedded_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    require_valkey()
    from relay_service.store.embedded_valkey import EmbeddedValkey

    async with EmbeddedValkey(tmp_path_factory.mktemp("valkey-embedded")) as server:
        yield server.url


async def harness(url: str) -> AsyncIterator[ValkeyHarness]:
    harness = ValkeyHarness(url)
    await harness.start()
    yield harness
    await harness.store.close()


class TestValkeyOverTcp(RoutingStoreContract):
    @pytest.fixture
    async def store_harness(self, tcp_server: TcpServer) -> AsyncIterator[ValkeyHarness]:
        async for made in harness(tcp_server.url):
            yield made


class TestEmbeddedValkey(RoutingStoreContract):
    @pytest.fixture
    async def store_harness(self, embedded_url: str) -> AsyncIterator[ValkeyHarness]:
        async for made in harness(embedded_url):
            yield made
