"""Pairings on a Valkey server: what they leave there, and what a broken one does."""

from collections.abc import AsyncIterator, Iterator

import pytest

from relay_service.core.pairing import DENIAL, PairingRefusal
from relay_service.store.contract.pairing import begun, introduction
from relay_service.store_guard import guarded
from service_common.errors import ServiceError

from .valkey_fixture import TcpServer, ValkeyHarness, require_valkey


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TcpServer]:
    require_valkey()
    server = TcpServer(tmp_path_factory.mktemp("valkey-pairings"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def harness(server: TcpServer) -> AsyncIterator[ValkeyHarness]:
    harness = ValkeyHarness(server.url)
    await harness.start()
    yield harness
    await harness.store.close()


def keys(server: TcpServer) -> set[str]:
    with server.client as client:
        return {key.decode() for key in client.keys("sealwork:{pairings}:*")}


async def test_expired_pairings_leave_nothing_behind(harness: ValkeyHarness, server: TcpServer) -> None:
    store = harness.store.pairings
    for number in range(1, 41):
        await begun(store, f"id-{number}", f"AAAA-{number:04}", number)
    await store.decide("id-7", DENIAL)
    await harness.advance(600_000)
    await begun(store, "id-x", "XXXX-XXXX", 99)
    assert keys(server) == {
        "sealwork:{pairings}:expiries",
        "sealwork:{pairings}:identities",
        "sealwork:{pairings}:of:id-x",
        "sealwork:{pairings}:users",
        "sealwork:{pairings}:waiting",
    }
    with server.client as client:
        assert client.hkeys("sealwork:{pairings}:users") == [b"XXXX-XXXX"]
        assert client.hlen("sealwork:{pairings}:identities") == 1
        assert client.zcard("sealwork:{pairings}:expiries") == 1
        assert client.zcard("sealwork:{pairings}:waiting") == 1


async def test_a_replaced_pairing_leaves_nothing_behind(harness: ValkeyHarness, server: TcpServer) -> None:
    store = harness.store.pairings
    for number in range(20):
        await begun(store, f"id-{number}", f"AAAA-{number:04}")
    with server.client as client:
        assert client.hkeys("sealwork:{pairings}:users") == [b"AAAA-0019"]
        assert client.zrange("sealwork:{pairings}:expiries", 0, -1) == [b"id-19"]
        assert client.exists("sealwork:{pairings}:of:id-18") == 0


@pytest.mark.parametrize("field", ["about", "state"])
async def test_a_pairing_that_cannot_be_read_is_none(
    harness: ValkeyHarness, server: TcpServer, field: str
) -> None:
    store = harness.store.pairings
    await begun(store)
    good = await begun(store, "id-2", "AAAA-0002", 2)
    with server.client as client:
        client.hset("sealwork:{pairings}:of:id-1", field, b"\xff{no record")
    assert await store.find("id-1") is None
    assert list(await store.pending()) == [good]
    assert await store.decide("id-1", DENIAL) is PairingRefusal.NOT_FOUND
    # The key that it belonged to starts anew, as ever.
    again = await begun(store, "id-3", "AAAA-0003", 1)
    assert list(await store.pending()) == [good, again]


async def test_a_server_that_is_away_is_told_as_such(tmp_path_factory: pytest.TempPathFactory) -> None:
    require_valkey()
    server = TcpServer(tmp_path_factory.mktemp("valkey-away"))
    server.start()
    harness = ValkeyHarness(server.url)
    await harness.start()
    server.kill()
    try:
        pairings = guarded(harness.store).pairings
        for call in (
            pairings.begin("id-1", "AAAA-0001", introduction()),
            pairings.find("id-1"),
            pairings.decide("id-1", DENIAL),
            pairings.pending(),
        ):
            with pytest.raises(ServiceError) as caught:
                await call
            assert caught.value.reason == "STORE_UNAVAILABLE"
    finally:
        await harness.store.close()
