"""Relays on one Valkey server that are killed at random under load: every job ends exactly once."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from relay_service.client import GeneratePayload, OkOutcome, RelayError, Site
from relay_service.client.site_notices import NoticeDesk
from relay_service.store.valkey import ValkeyRoutingStore
from tests.harness.fault_proxy import FaultProxy, fault_proxy
from tests.harness.processes import RunningProcess
from tests.harness.waiting import eventually
from tests.relay_service.relay_fixture import keys_of
from tests.relay_service.replicas.relay_processes import (
    OWNERS,
    PEOPLE,
    Device,
    close_all,
    relay_on,
    write_projection,
)
from tests.relay_service.store.valkey_fixture import TcpServer, free_port, require_valkey

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

SITES = ("demo", "demo", "other")
PUBLISHERS_PER_SITE = 4
KILLS = 5
# What the relays do between two kills, in results collected.
RESULTS_BETWEEN_KILLS = 60


class Replica:
    """One relay at one address, killed and started again."""

    def __init__(self, run: Callable[[str], AbstractAsyncContextManager[RunningProcess]]) -> None:
        self.port = free_port()
        self._run = run
        self._running: AbstractAsyncContextManager[RunningProcess] | None = None
        self._process: RunningProcess | None = None

    async def start(self) -> None:
        self._running = self._run(f"127.0.0.1:{self.port}")
        self._process = await self._running.__aenter__()

    async def kill(self) -> None:
        """Ends it without a chance to say or write anything."""
        if self._running is not None and self._process is not None:
            self._process.kill()
            await self._process.wait()
            await self._running.__aexit__(None, None, None)
            self._running = None


class Balancer:
    """Gives each party a way of its own to some relay that is alive."""

    def __init__(self, replicas: list[Replica], random: Random, parties: AsyncExitStack) -> None:
        self._replicas = replicas
        self._random = random
        self._parties = parties
        self._ways: list[FaultProxy] = []

    async def address(self) -> str:
        way = await self._parties.enter_async_context(
            fault_proxy("127.0.0.1", self._random.choice(self._replicas).port)
        )
        self._ways.append(way)
        return way.address

    def avoid(self, dead: Replica) -> None:
        """New connections go to any of the other relays; those that there are end with the dead one."""
        alive = [replica for replica in self._replicas if replica is not dead]
        for way in self._ways:
            way.target = ("127.0.0.1", self._random.choice(alive).port)


class Load:
    """Publishers that ask for one job after the other, and what came of each.

    Attributes:
        published: ids of the jobs that a relay has confirmed or may have.
        results: by job id, how often a result was handed over.
    """

    def __init__(self) -> None:
        self.published: set[str] = set()
        self.results: dict[str, int] = defaultdict(int)
        self.enough = asyncio.Event()

    async def publish(self, site: Site, name: str) -> None:
        number = 0
        while not self.enough.is_set():
            number += 1
            await self._one(site, f"{name}-{number}")

    async def _one(self, site: Site, job_id: str) -> None:
        owner = PEOPLE[len(self.published) % len(PEOPLE)]
        self.published.add(job_id)
        job = None
        while job is None:
            # Nobody knows whether it was taken; the same id once more is always safe.
            with suppress(RelayError):
                job = await site.enqueue(GeneratePayload(job_id), owner=owner, job_id=job_id)
        result = await job.result()
        assert result.outcome == OkOutcome(job_id[::-1])
        self.results[job_id] += 1


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[TcpServer]:
    require_valkey()
    server = TcpServer(tmp_path)
    await asyncio.to_thread(server.start)
    yield server
    server.kill()


@pytest.fixture
def ends_told(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """By job id, the notices of a result that any process of a site was sent."""
    told: dict[str, set[str]] = defaultdict(set)
    handle = NoticeDesk.handle

    def note(desk: NoticeDesk, notice: Any) -> None:
        if notice.WhichOneof("notice") == "result_ready":
            told[notice.job_id].add(notice.notice_id)
        handle(desk, notice)

    monkeypatch.setattr(NoticeDesk, "handle", note)
    return told


async def kill_at_random(replicas: list[Replica], balancer: Balancer, load: Load, random: Random) -> None:
    """Kills one relay after the other while work goes on, and starts each again."""
    for _ in range(KILLS):
        goal = len(load.results) + RESULTS_BETWEEN_KILLS
        await eventually(lambda goal=goal: len(load.results) >= goal, 60, f"{goal} results")  # type: ignore[misc]
        victim = random.choice(replicas)
        balancer.avoid(victim)
        await victim.kill()
        await victim.start()


async def test_every_job_ends_exactly_once(
    server: TcpServer, tmp_path: Path, ends_told: dict[str, set[str]]
) -> None:
    random = Random(20_261_129)
    projection = write_projection(tmp_path)
    replicas = [Replica(lambda at: relay_on(server.url, projection, at, "--lease", "3s")) for _ in range(3)]
    load = Load()
    async with AsyncExitStack() as parties:
        for replica in replicas:
            parties.push_async_callback(replica.kill)
        await asyncio.gather(*(replica.start() for replica in replicas))
        balancer = Balancer(replicas, random, parties)
        devices = [Device(await balancer.address(), name, owner) for name, owner in OWNERS]
        parties.push_async_callback(close_all, devices)
        sites = [
            await parties.enter_async_context(
                Site(await balancer.address(), site_id=site_id, keys=keys_of(site_id))
            )
            for site_id in SITES
        ]
        publishing = [
            asyncio.create_task(load.publish(site, f"job-{place}-{publisher}"))
            for place, site in enumerate(sites)
            for publisher in range(PUBLISHERS_PER_SITE)
        ]
        await kill_at_random(replicas, balancer, load, random)
        load.enough.set()
        # None is stuck and none is lost.
        async with asyncio.timeout(90):
            await asyncio.gather(*publishing)
        for site in sites:
            await site.close()

        assert load.published == set(load.results)
        assert set(load.results.values()) == {1}
        # A result was recorded once, whoever was told of it and how often.
        assert all(len(notices) == 1 for notices in ends_told.values())
        ran = {job_id for device in devices for job_id in device.accepted}
        assert ran == load.published
        await nothing_left(server)


async def nothing_left(server: TcpServer) -> None:
    """The store has neither a job nor a row in an inbox: everything has ended and was settled."""
    store = ValkeyRoutingStore(server.url)
    await store.start()
    try:
        assert not [job.stub.id for job in await store.jobs()]
        for site_id in set(SITES):
            assert not await store.notices(site_id, 0, 100)
    finally:
        await store.close()
