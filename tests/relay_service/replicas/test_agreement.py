"""What relays on one store agree on beside jobs: streams of a device, and the projection."""

import asyncio
from dataclasses import replace

import pytest

from relay_service.projection import ProjectionSource
from relay_service.projection_exchange import ProjectionExchange
from relay_service.store.valkey import ValkeyRoutingStore
from sealwork.session.v1 import session_pb2
from service_common.background import Background
from tests.harness.waiting import eventually
from tests.relay_service.raw_client import RawDaemon
from tests.relay_service.relay_fixture import PROJECTION, keys_of, without_device
from tests.relay_service.replicas.two_relays import TwoRelays
from tests.relay_service.store.valkey_fixture import TcpServer

# A file that was read has a revision.
ON_FILE = replace(PROJECTION, revision=1)


def at_first_relay(relay: TwoRelays) -> RawDaemon:
    return relay.daemon(channel=relay.channel)


async def test_a_newer_stream_at_another_relay_ends_the_older(relay: TwoRelays) -> None:
    older = await relay.daemon().connect(limit=1)
    newer = await at_first_relay(relay).connect(limit=1)
    refusal = await older.end()
    assert refusal is not None
    assert refusal.reason == "SESSION_SUPERSEDED"
    await newer.settle()
    await relay.enqueue("job-1")
    assert (await newer.next("granted")).stub.id == "job-1"


async def test_epochs_grow_from_relay_to_relay(relay: TwoRelays) -> None:
    epochs = []
    for daemon in (relay.daemon(), at_first_relay(relay), relay.daemon()):
        stream = await daemon.connect(limit=1)
        welcomes = [
            item.welcome for frame in stream.frames for item in frame.items if item.HasField("welcome")
        ]
        epochs += [welcome.session_epoch for welcome in welcomes]
        await stream.send(goodbye=session_pb2.Goodbye())
        assert await stream.end() is None
    assert epochs == sorted(set(epochs))
    assert len(epochs) == 3


@pytest.fixture
async def exchanges(valkey: TcpServer, relay: TwoRelays) -> list[tuple[ProjectionSource, ProjectionExchange]]:
    """Two more relays, as far as projections are concerned: one with a file, one without."""
    made = []
    for projection, has_file in ((ON_FILE, True), (None, False)):
        store = ValkeyRoutingStore(valkey.url)
        await store.start()
        source = ProjectionSource(projection)
        exchange = ProjectionExchange(store, source, Background())
        await exchange.begin(has_file=has_file)
        made.append((source, exchange))
    return made


async def test_a_relay_without_a_file_follows_the_one_with(
    exchanges: list[tuple[ProjectionSource, ProjectionExchange]],
) -> None:
    (with_file, _), (without, _) = exchanges
    assert without.current.device("runner-1") is not None
    assert without.current.revision == with_file.current.revision
    with_file.replace(without_device("runner-1"))
    async with asyncio.timeout(1):
        await eventually(lambda: without.current.device("runner-1") is None)
    assert without.current.revision == with_file.current.revision


async def test_a_restart_with_an_edited_file_counts(
    valkey: TcpServer, exchanges: list[tuple[ProjectionSource, ProjectionExchange]]
) -> None:
    (_, _), (without, _) = exchanges
    store = ValkeyRoutingStore(valkey.url)
    await store.start()
    edited = ProjectionSource(replace(without_device("runner-2"), revision=1))
    await ProjectionExchange(store, edited, Background()).begin(has_file=True)
    await eventually(lambda: without.current.device("runner-2") is None)
    assert without.current.device("runner-1") is not None


async def test_a_restart_with_the_same_file_changes_nothing(
    valkey: TcpServer, exchanges: list[tuple[ProjectionSource, ProjectionExchange]]
) -> None:
    (first, _), _ = exchanges
    store = ValkeyRoutingStore(valkey.url)
    await store.start()
    again = ProjectionSource(ON_FILE)
    before = first.current.revision
    await ProjectionExchange(store, again, Background()).begin(has_file=True)
    assert again.current.revision == before
    shared = await store.shared_projection()
    assert shared is not None
    assert shared.revision == before
    assert keys_of("runner-1").key_id in {device.identity.key_id for device in again.current.devices}
