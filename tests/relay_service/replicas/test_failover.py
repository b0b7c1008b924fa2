"""Another Valkey server becomes the primary: calls say that the store is away, and go on by themselves."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sealwork.relay.v1 import daemon_plane_pb2, site_plane_pb2
from tests.harness.fault_proxy import FaultProxy, fault_proxy
from tests.harness.waiting import eventually
from tests.relay_service.raw_client import Refusal
from tests.relay_service.relay_fixture import ref
from tests.relay_service.replicas.test_outage import assert_store_unavailable, is_away, reached
from tests.relay_service.replicas.two_relays import TwoRelays, two_relays
from tests.relay_service.store.valkey_fixture import TcpServer, ValkeyRoutingStore, require_valkey

GET_JOB = site_plane_pb2.GetJobRequest(job_id="job-1")


@dataclass
class Pair:
    """A primary and its replica, and the one name that the relays know."""

    first: TcpServer
    second: TcpServer
    name: FaultProxy

    async def promote(self) -> None:
        """The replica becomes the primary and the primary its replica; no connection is closed."""
        await asyncio.to_thread(self._promote)

    def _promote(self) -> None:
        with closing(any_client(self.first)) as client:
            client.execute_command("FAILOVER", "TO", "127.0.0.1", self.second.port)
        wait_for_role(self.second, b"master")
        wait_for_role(self.first, b"slave")

    def rename(self) -> None:
        """From now on the name leads to the new primary; connections that there are stay where they are."""
        self.name.target = ("127.0.0.1", self.second.port)


def any_client(server: TcpServer) -> Any:
    """A client of a server, untyped as some of its methods are."""
    return server.client


def wait_for_role(server: TcpServer, role: bytes, link: bytes | None = None) -> None:
    with closing(any_client(server)) as client:
        while True:
            found: Any = client.execute_command("ROLE")
            if found[0] == role and (link is None or found[3] == link):
                return


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[TcpServer]]:
    require_valkey()
    started = []
    try:
        for name in ("first", "second"):
            started.append(TcpServer(Path(tmp_path_factory.mktemp(name)), cluster=False))
            started[-1].start()
        yield started
    finally:
        for server in started:
            server.kill()


@pytest.fixture
async def pair(servers: list[TcpServer]) -> AsyncIterator[Pair]:
    await asyncio.to_thread(follow, servers[0], servers[1])
    async with fault_proxy("127.0.0.1", servers[0].port) as name:
        yield Pair(servers[0], servers[1], name)


def follow(primary: TcpServer, replica: TcpServer) -> None:
    """An empty primary and a replica that is level with it."""
    with closing(any_client(primary)) as client, closing(any_client(replica)) as other:
        client.execute_command("REPLICAOF", "NO", "ONE")
        client.flushall()
        other.execute_command("REPLICAOF", "127.0.0.1", primary.port)
        wait_for_role(replica, b"slave", b"connected")
        client.wait(1, 0)


@pytest.fixture
async def relay(pair: Pair) -> AsyncIterator[TwoRelays]:
    async with two_relays(f"valkey://{pair.name.address}") as running:
        yield running


async def listeners(server: TcpServer) -> int:
    """How many relays hear the changes that are published at a server."""

    def count() -> int:
        with closing(any_client(server)) as client:
            ((_, number),) = client.pubsub_numsub("sealwork:changes")
        return int(number)

    return await asyncio.to_thread(count)


async def test_a_failover_is_an_outage_and_no_more(pair: Pair, relay: TwoRelays) -> None:
    site, device = await relay.site().connect(), await relay.daemon().connect(limit=3)
    await relay.enqueue("job-1")
    lease = ref(await device.next("granted"))
    await device.send(grant_ack=daemon_plane_pb2.GrantAck(leases=[lease]))
    await site.next("notice")

    await pair.promote()
    for store in relay.stores:
        await eventually(lambda store=store: is_away(store))  # type: ignore[misc]
    # The name still leads to the old one.
    for number in range(1, 4):
        assert_store_unavailable(await relay.site().refused("GetJob", GET_JOB))
        await site.send(call=site_plane_pb2.SiteCall(id=number, get_job=GET_JOB))
        assert_store_unavailable(Refusal.of_status((await site.next("reply")).error))

    pair.rename()
    await reached(relay)
    assert await relay.state("job-1") == "awaiting-payload"
    await relay.seal(lease)
    assert (await device.next("payload_ready")).lease == lease
    await device.send(renew=daemon_plane_pb2.Renew(renewal_id=1, leases=[lease]))
    answer = await eventually(lambda: next((v for v in device.take("verdicts") if v.renewal_id), None))
    assert list(answer.verdicts) == []
    # News of one relay reaches the other through the new primary.
    await relay.enqueue("job-2")
    assert (await device.next("granted")).stub.id == "job-2"
    assert not site.closed
    assert not device.closed


async def test_everybody_listens_at_the_new_primary(pair: Pair, relay: TwoRelays) -> None:
    async def moved() -> bool:
        return (await listeners(pair.first), await listeners(pair.second)) == (0, 2)

    assert (await listeners(pair.first), await listeners(pair.second)) == (2, 0)
    await pair.promote()
    pair.rename()
    await reached(relay)
    await eventually(moved)


async def test_a_relay_that_starts_at_a_replica_waits_for_the_primary(pair: Pair) -> None:
    await pair.promote()
    store = ValkeyRoutingStore(f"valkey://{pair.name.address}")
    starting = asyncio.create_task(store.start(30))
    await eventually(lambda: pair.name.accepted >= 2)
    assert not starting.done()
    pair.rename()
    await starting
    await store.delivered()
    await store.close()


async def test_a_primary_that_is_killed_is_replaced_by_its_replica(pair: Pair, relay: TwoRelays) -> None:
    """The hard kind: what was confirmed and not replicated yet would be lost, and here nothing was."""
    await relay.enqueue("job-1")
    with closing(any_client(pair.first)) as client:
        await asyncio.to_thread(client.wait, 1, 0)
    pair.first.kill()
    try:
        for store in relay.stores:
            await eventually(lambda store=store: is_away(store))  # type: ignore[misc]
        pair.rename()
        # Its address answers, and it is a replica still.
        assert_store_unavailable(await relay.site().refused("GetJob", GET_JOB))
        with closing(any_client(pair.second)) as client:
            await asyncio.to_thread(client.execute_command, "REPLICAOF", "NO", "ONE")
        await reached(relay)
        assert await relay.state("job-1") == "queued"
        device = await relay.daemon().connect(limit=1)
        assert (await device.next("granted")).stub.id == "job-1"
    finally:
        await asyncio.to_thread(pair.first.start)
