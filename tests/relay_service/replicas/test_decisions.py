"""An operator decides at one relay, and streams at another one feel it at once.

Two relays as processes of their own, each with a file of its own, share a Valkey server. Decisions are made
at the first; devices and sites have their streams at the second.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import grpc.aio
import pytest

from relay_service.client.operator import Operator
from relay_service.client.succession import sign_link
from relay_service.core.projection import Projection
from relay_service.projection_file import format_projection, load_projection
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from sealwork.session.v1 import session_pb2
from tests.harness.processes import RunningProcess
from tests.harness.waiting import eventually
from tests.relay_service.raw_client import KIND, RawDaemon, RawSite, RawStream
from tests.relay_service.raw_pairing import APPROVED, PENDING, NewDevice
from tests.relay_service.relay_fixture import DAY_MS, keys_of, ref, timestamp
from tests.relay_service.replicas.relay_processes import relay_on
from tests.relay_service.store.valkey_fixture import TcpServer, empty, free_port, require_valkey

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

# What is decided has reached every stream within this time.
AT_ONCE_SECONDS = 1.0

Answer = TypeVar("Answer")
_NUMBERS = count(1)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def at_once(news: Awaitable[Answer]) -> Answer:
    """News that has to come within a second from now, which is after the decision was answered."""
    async with asyncio.timeout(AT_ONCE_SECONDS):
        return await news


@dataclass
class Replica:
    folder: Path
    store: str
    port: int = field(default_factory=free_port)
    process: RunningProcess = field(init=False)
    channel: Any = field(init=False)

    @property
    def path(self) -> Path:
        return self.folder / "projection.json"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def prepare(self) -> None:
        self.folder.mkdir()
        self.path.write_text(format_projection(Projection(revision=1)))
        (self.folder / "operator.json").write_text(json.dumps(keys_of("operator").public.to_json()))

    def decided(self) -> Projection:
        return load_projection(self.path)

    def actors(self) -> list[str]:
        lines = self.path.with_name("projection.json.audit.jsonl").read_text().splitlines()
        return [json.loads(line)["actor"] for line in lines]

    async def start(self, stack: AsyncExitStack) -> "Replica":
        identity = (
            "--operator-identity",
            str(self.folder / "operator.json"),
            "--pairing-starts-per-minute",
            "1000",
        )
        running = relay_on(self.store, self.path, self.address, *identity)
        self.process = await stack.enter_async_context(running)
        self.channel = await stack.enter_async_context(grpc.aio.insecure_channel(self.address))
        return self


@dataclass
class Stage:
    """A site, its key, a person who consents to it and a device of that person, all of names used once."""

    first: Replica
    second: Replica
    operator: Operator
    other: Operator
    number: int = field(default_factory=lambda: next(_NUMBERS))

    def name(self, what: str) -> str:
        return f"{what}-{self.number}"

    def site(self, keys: str = "") -> RawSite:
        name = self.name("site")
        return RawSite(self.second.channel, name, keys_of(keys or name), now_ms)

    def device(self, name: str) -> RawDaemon:
        return RawDaemon(self.second.channel, name, keys_of(name), now_ms)

    async def set(self) -> "Stage":
        owner = self.name("alice")
        await self.operator.add_site(self.name("site"), keys_of(self.name("site")).public)
        await self.operator.grant_consent(owner, self.name("site"))
        await self.add_device("device", owner)
        return self

    async def add_device(self, what: str, owner: str) -> str:
        name = self.name(what)
        await self.operator.add_device(name, owner, keys_of(name).public)
        await self.settled()
        return name

    async def settled(self) -> None:
        """Returns when the second relay has what was decided so far, for what a test begins with."""
        revision = (await self.operator.projection()).revision

        async def there() -> bool:
            return (await self.other.projection()).revision >= revision

        await eventually(there)

    async def connect(self, what: str = "device", limit: int = 5) -> RawStream:
        return await self.device(self.name(what)).connect(limit=limit)

    async def enqueue(self, job_id: str) -> None:
        stub = job_pb2.JobStub(
            id=job_id,
            kind=KIND,
            owner=self.name("alice"),
            site=keys_of(self.name("site")).key_id,
            audience=job_pb2.AUDIENCE_TEAM,
            size_class=job_pb2.SIZE_CLASS_SMALL,
            deadline_time=timestamp(now_ms() + DAY_MS),
        )
        await self.site().call("EnqueueJob", site_plane_pb2.EnqueueJobRequest(stub=stub))

    async def state(self, job_id: str) -> int:
        job = await self.site().call("GetJob", site_plane_pb2.GetJobRequest(job_id=job_id))
        return int(job.job.state)


@pytest.fixture(scope="module")
async def relays(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Replica, Replica]]:
    require_valkey()
    folder = tmp_path_factory.mktemp("decisions")
    server = TcpServer(folder / "valkey")
    await asyncio.to_thread(server.folder.mkdir)
    await asyncio.to_thread(server.start)
    empty(server.url)
    first, second = Replica(folder / "first", server.url), Replica(folder / "second", server.url)
    first.prepare()
    second.prepare()
    try:
        async with AsyncExitStack() as stack:
            yield await first.start(stack), await second.start(stack)
    finally:
        await asyncio.to_thread(server.stop)


@pytest.fixture
async def stage(relays: tuple[Replica, Replica]) -> AsyncIterator[Stage]:
    first, second = (Operator(relay.address, keys=keys_of("operator")) for relay in relays)
    async with first, second:
        yield await Stage(*relays, first, second).set()


async def test_a_device_that_is_revoked_is_ended_and_its_work_goes_to_another(stage: Stage) -> None:
    await stage.add_device("spare", stage.name("alice"))
    stream = await stage.connect()
    await stage.enqueue("job")
    granted = await stream.next("granted")
    await stream.send(grant_ack=daemon_plane_pb2.GrantAck(leases=[ref(granted)]))
    await stream.settle()
    spare = await stage.connect("spare")
    await stage.operator.revoke_device(stage.name("device"))
    refusal, regranted = await at_once(asyncio.gather(stream.end(), spare.next("granted")))
    assert refusal is not None
    assert refusal.reason == "DEVICE_REVOKED"
    assert regranted.stub.id == "job"
    assert regranted.lease.id != granted.lease.id


async def test_a_consent_that_is_revoked_takes_the_site_from_devices_and_routes_nothing(stage: Stage) -> None:
    stream = await stage.connect()
    await stage.operator.revoke_consent(stage.name("alice"), stage.name("site"))
    changed = await at_once(stream.next("sites_changed"))
    assert not changed.directory.sites
    await stage.enqueue("job")
    await stream.settle()
    assert not stream.take("granted")


async def test_a_consent_that_is_paused_keeps_the_pin_and_routes_nothing(stage: Stage) -> None:
    stream = await stage.connect()
    await stage.operator.pause_consent(stage.name("alice"), stage.name("site"))
    (site,) = (await at_once(stream.next("sites_changed"))).directory.sites
    assert (site.key_id, site.awaiting_consent) == (keys_of(stage.name("site")).key_id, True)
    await stage.enqueue("job")
    await stream.settle()
    assert not stream.take("granted")


async def test_a_consent_that_is_resumed_routes_what_has_waited(stage: Stage) -> None:
    await stage.operator.pause_consent(stage.name("alice"), stage.name("site"))
    await stage.settled()
    stream = await stage.connect()
    await stage.enqueue("job")
    await stage.operator.resume_consent(stage.name("alice"), stage.name("site"))
    changed, granted = await at_once(asyncio.gather(stream.next("sites_changed"), stream.next("granted")))
    assert [site.awaiting_consent for site in changed.directory.sites] == [False]
    assert granted.stub.id == "job"


async def test_a_roster_opens_and_closes_the_devices_of_a_host(stage: Stage) -> None:
    bob, alice = stage.name("bob"), stage.name("alice")
    await stage.operator.revoke_device(stage.name("device"))
    await stage.operator.grant_consent(bob, stage.name("site"))
    await stage.add_device("host", bob)
    stream = await stage.connect("host")
    await stage.enqueue("job-1")
    await stream.settle()
    assert not stream.take("granted")
    await stage.operator.add_roster_members("friends", bob, [alice])
    assert (await at_once(stream.next("granted"))).stub.id == "job-1"
    await stage.operator.remove_roster_members("friends", bob, [alice])

    async def gone() -> bool:
        return not (await asyncio.to_thread(stage.second.decided)).rosters

    await at_once(eventually(gone))
    await stage.enqueue("job-2")
    await stream.settle()
    assert not stream.take("granted")


async def test_a_new_site_is_known_and_its_owner_s_devices_hear_of_it(stage: Stage) -> None:
    stream = await stage.connect()
    new = stage.name("new")
    site = RawSite(stage.second.channel, new, keys_of(new), now_ms)
    request = site_plane_pb2.GetJobRequest(job_id="none")
    assert (await site.refused("GetJob", request)).reason == "BAD_SIGNATURE"
    await stage.operator.add_site(new, keys_of(new).public)

    async def known() -> bool:
        return (await site.refused("GetJob", request)).reason == "JOB_NOT_FOUND"

    await at_once(eventually(known))
    await stage.operator.grant_consent(stage.name("alice"), new)
    changed = await at_once(stream.next("sites_changed"))
    assert {each.key_id for each in changed.directory.sites} == {
        keys_of(stage.name("site")).key_id,
        keys_of(new).key_id,
    }


async def test_a_site_that_moves_to_a_new_key_keeps_its_old_one_for_the_window(stage: Stage) -> None:
    old, new = stage.name("site"), stage.name("rotated")
    link = sign_link(keys_of(old), keys_of(new).key_id)
    device, site = await stage.connect(), await stage.site().connect()
    await stage.operator.rotate_site(old, keys_of(new).public, link.signature, now_ms() + 60_000)
    (directory,) = (await at_once(device.next("sites_changed"))).directory.sites
    assert directory.key_id == keys_of(new).key_id
    assert [each.signature for each in directory.succeeds] == [link.signature]
    await site.settle()
    await (await stage.site(new).connect()).settle()


async def test_a_site_whose_old_key_ends_at_once_loses_its_streams(stage: Stage) -> None:
    old, new = stage.name("site"), stage.name("rotated")
    link = sign_link(keys_of(old), keys_of(new).key_id)
    site = await stage.site().connect()
    await stage.operator.rotate_site(old, keys_of(new).public, link.signature, None)
    refusal = await at_once(site.end())
    assert refusal is not None
    assert refusal.reason == "BAD_SIGNATURE"
    await (await stage.site(new).connect()).settle()


async def test_a_device_that_is_approved_learns_of_it_and_may_connect(stage: Stage) -> None:
    name, owner = stage.name("paired"), stage.name("alice")
    device = NewDevice(stage.second.channel, now_ms, keys_of(name))
    started = await device.start(label="Desk")
    watch = device.watch(started.device_code)
    assert (await watch.next()).state == PENDING
    (waiting,) = await stage.operator.pairings()
    assert (waiting.user_code, waiting.key_id) == (started.user_code, keys_of(name).key_id)
    runner_id = await stage.operator.approve(started.user_code.lower(), owner)
    answer = await at_once(watch.ends_with())
    assert answer.state == APPROVED
    assert (answer.approval.runner_id, answer.approval.owner) == (runner_id, owner)
    assert await stage.operator.approve(started.user_code, owner) == runner_id
    raw = RawDaemon(stage.second.channel, runner_id, keys_of(name), now_ms)
    stream = await raw.connect(limit=1)
    await stream.settle()
    await stream.send(goodbye=session_pb2.Goodbye())
    assert await stage.operator.pairings() == []


async def test_every_relay_s_file_has_what_was_decided(stage: Stage) -> None:
    await stage.operator.revoke_device(stage.name("device"))

    async def written(replica: Replica) -> bool:
        device = (await asyncio.to_thread(replica.decided)).device(stage.name("device"))
        return device is not None and device.revoked

    await at_once(eventually(lambda: written(stage.second)))
    assert await written(stage.first)
    assert (await asyncio.to_thread(stage.first.actors))[-1] == "operator"
    assert (await asyncio.to_thread(stage.second.actors))[-1] == "relays"


async def test_a_relay_that_was_away_undoes_nothing_when_it_comes_back(stage: Stage) -> None:
    """Its file is that of before; nobody has edited it."""
    late = Replica(stage.first.folder.parent / stage.name("late"), stage.first.store)
    late.prepare()
    async with AsyncExitStack() as stack:
        await late.start(stack)
        late.process.kill()
        await late.process.wait()
    await stage.operator.revoke_device(stage.name("device"))
    async with AsyncExitStack() as stack:
        await late.start(stack)
        device = (await asyncio.to_thread(late.decided)).device(stage.name("device"))
        assert device is not None
        assert device.revoked
    projection = await stage.operator.projection()
    revoked = projection.device(stage.name("device"))
    assert revoked is not None
    assert revoked.revoked


async def test_decisions_at_two_relays_at_the_same_time_all_count(stage: Stage) -> None:
    people = [stage.name(f"person-{number}") for number in range(12)]
    operators = (stage.operator, stage.other)
    await asyncio.gather(
        *(
            operators[number % 2].grant_consent(person, stage.name("site"))
            for number, person in enumerate(people)
        )
    )
    for operator in operators:

        async def all_there(operator: Operator = operator) -> bool:
            projection = await operator.projection()
            return all(projection.may_route(person, stage.name("site")) for person in people)

        await at_once(eventually(all_there))
