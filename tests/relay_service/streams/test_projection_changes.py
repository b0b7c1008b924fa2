"""Every decision of the operator reaches live streams at once."""

import asyncio
from dataclasses import replace
from typing import Any

import grpc
import pytest

from relay_service.core.projection import (
    Consent,
    ProjectedDevice,
    ProjectedSite,
    Projection,
    SuccessionLink,
)
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from sealwork.session.v1 import session_pb2
from tests.harness.waiting import eventually
from tests.relay_service.raw_client import RawStream
from tests.relay_service.relay_fixture import (
    PROJECTION,
    START_MS,
    RelayUnderTest,
    Serve,
    keys_of,
    ref,
    with_device,
    without_device,
)

REVOKED = (grpc.StatusCode.PERMISSION_DENIED, "DEVICE_REVOKED")
BAD_SIGNATURE = (grpc.StatusCode.UNAUTHENTICATED, "BAD_SIGNATURE")
DEVICE = PROJECTION.devices[0]


async def ended(stream: RawStream) -> tuple[grpc.StatusCode, str]:
    refusal = await stream.end()
    assert refusal is not None
    return refusal.code, refusal.reason


def paused(owner: str, site_id: str) -> Projection:
    consents = tuple(
        replace(consent, paused=(consent.owner, consent.site_id) == (owner, site_id))
        for consent in PROJECTION.consents
    )
    return replace(PROJECTION, consents=consents)


def with_site(site: ProjectedSite) -> Projection:
    others = tuple(each for each in PROJECTION.sites if each.site_id != site.site_id)
    return replace(PROJECTION, sites=(site, *others))


CUT_OFF: list[tuple[str, Projection, tuple[grpc.StatusCode, str]]] = [
    ("revoked", with_device(replace(DEVICE, revoked=True)), REVOKED),
    ("removed", without_device("runner-1"), REVOKED),
    ("re-keyed", with_device(replace(DEVICE, identity=keys_of("new").public)), BAD_SIGNATURE),
    ("another owner's", with_device(replace(DEVICE, owner="bob")), BAD_SIGNATURE),
]


@pytest.mark.parametrize(("new", "status"), [case[1:] for case in CUT_OFF], ids=[case[0] for case in CUT_OFF])
async def test_a_device_that_is_cut_off_is_ended_and_its_leases_return(
    relay: RelayUnderTest, new: Projection, status: tuple[grpc.StatusCode, str]
) -> None:
    stream = await relay.daemon().connect(limit=3)
    await relay.enqueue("held", "on-its-way")
    held = ref(await stream.next("granted"))
    await stream.next("granted")
    await stream.send(grant_ack=daemon_plane_pb2.GrantAck(leases=[held]))
    await stream.settle()
    await relay.enqueue("queued")
    relay.source.replace(new)
    assert await ended(stream) == status
    await relay.ended("daemon", "refused")
    for job_id in ("held", "on-its-way", "queued"):
        await relay.becomes(job_id, "queued")
        job = await relay.store.job("demo", job_id)
        assert job is not None
        assert (job.seal_attempts, job.refused_by) == (0, ())
    other = await relay.daemon("runner-2").connect(limit=1)
    await other.next("granted")


async def test_other_devices_are_left_alone(relay: RelayUnderTest) -> None:
    stream = await relay.daemon("runner-2").connect(limit=1)
    await stream.next("verdicts")
    await relay.enqueue("job-1")
    lease = ref(await stream.next("granted"))
    relay.source.replace(with_device(replace(DEVICE, revoked=True)))
    await stream.settle()
    assert await relay.state(lease.job_id) == "awaiting-payload"
    assert [item.WhichOneof("item") for item in stream.items] == []


async def test_leases_of_a_device_without_a_stream_return_as_well(relay: RelayUnderTest) -> None:
    await relay.enqueue("job-1")
    await _claim(relay)
    assert await relay.state("job-1") == "awaiting-payload"
    relay.source.replace(with_device(replace(DEVICE, revoked=True)))
    await relay.becomes("job-1", "queued")


async def _claim(relay: RelayUnderTest, wait_ms: int = 0) -> Any:
    request = daemon_plane_pb2.ClaimJobsRequest(
        request_id="claim", matrix=relay.daemon().hello().matrix, max_jobs=1
    )
    request.wait.FromMilliseconds(wait_ms)
    return await relay.daemon().call("ClaimJobs", request)


async def test_a_revoked_device_is_told_on_every_call(relay: RelayUnderTest) -> None:
    relay.source.replace(with_device(replace(DEVICE, revoked=True)))
    refusal = await relay.daemon().refused("GetSites", daemon_plane_pb2.GetSitesRequest())
    assert (refusal.code, refusal.reason) == REVOKED


# -- routes -------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", ["alice", "bob"])
async def test_a_paused_consent_stops_the_routing(relay: RelayUnderTest, owner: str) -> None:
    """The person's own devices and those that would take the person's work."""
    streams = {name: await relay.daemon(name).connect(limit=9) for name in ("runner-1", "runner-b")}
    relay.source.replace(paused(owner, "demo"))
    if owner == "bob":
        await streams["runner-1"].send(draining=daemon_plane_pb2.Draining())
    for stream in streams.values():
        await stream.settle()
    await relay.enqueue("job-1")
    for stream in streams.values():
        await stream.settle()
        assert not stream.take("granted")
    assert await relay.state("job-1") == "queued"


async def test_a_resumed_consent_opens_the_route_at_once(relay: RelayUnderTest) -> None:
    relay.source.replace(paused("alice", "demo"))
    stream = await relay.daemon().connect(limit=1)
    await stream.settle()
    await relay.enqueue("job-1")
    relay.source.replace(PROJECTION)
    assert (await stream.next("granted")).stub.id == "job-1"


async def test_a_call_that_waits_profits_as_well(relay: RelayUnderTest) -> None:

    relay.source.replace(paused("alice", "demo"))
    await relay.enqueue("job-1")
    waiting = asyncio.create_task(_claim(relay, wait_ms=10_000))

    await eventually(relay.who_waits)
    relay.source.replace(PROJECTION)
    answer = await asyncio.wait_for(waiting, 5)
    assert [granted.stub.id for granted in answer.granted] == ["job-1"]


async def test_a_call_that_waits_for_a_device_that_is_cut_off_gets_nothing(relay: RelayUnderTest) -> None:

    waiting = asyncio.create_task(_claim(relay, wait_ms=10_000))
    await eventually(relay.who_waits)
    relay.source.replace(with_device(replace(DEVICE, revoked=True)))
    await relay.enqueue("job-1")
    await relay.clock.advance_async(10_000)
    assert not (await asyncio.wait_for(waiting, 5)).granted
    assert await relay.state("job-1") == "queued"


async def test_leases_of_a_paused_consent_run_on(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(limit=1)
    await relay.enqueue("job-1")
    lease = ref(await stream.next("granted"))
    relay.source.replace(paused("alice", "demo"))
    await relay.seal(lease)
    await stream.next("payload_ready")
    assert await relay.state("job-1") == "ready"


# -- sites --------------------------------------------------------------------------------


async def test_a_device_is_told_which_sites_its_owner_consents_to(relay: RelayUnderTest) -> None:
    alice, bob = await relay.daemon().connect(), await relay.daemon("runner-b").connect()
    relay.source.replace(paused("alice", "demo"))
    directory = (await alice.next("sites_changed")).directory
    assert [(site.key_id, site.awaiting_consent) for site in directory.sites] == [
        (keys_of("demo").key_id, True),
        (keys_of("other").key_id, False),
    ]
    answer = await relay.daemon().call("GetSites", daemon_plane_pb2.GetSitesRequest())
    assert answer.directory == directory
    await bob.settle()
    assert not bob.take("sites_changed")


async def test_a_consent_that_is_withdrawn_leaves_the_directory(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect()
    relay.source.replace(replace(PROJECTION, revoked=(("alice", "demo"),)))
    directory = (await stream.next("sites_changed")).directory
    assert [site.key_id for site in directory.sites] == [keys_of("other").key_id]
    relay.source.replace(replace(PROJECTION, consents=()))
    assert not (await stream.next("sites_changed")).directory.sites


async def test_a_change_that_concerns_nobody_is_told_to_nobody(relay: RelayUnderTest) -> None:
    streams = [await relay.daemon().connect(), await relay.site().connect()]
    for stream in streams:
        await stream.settle()
        stream.items.clear()
    more = ProjectedDevice("carol", "runner-c", keys_of("runner-c").public)
    relay.source.replace(replace(PROJECTION, devices=(*PROJECTION.devices, more)))
    for stream in streams:
        await stream.settle()
        assert stream.items == []


async def test_a_removed_site_is_ended(relay: RelayUnderTest) -> None:
    stream, other = await relay.site().connect(), await relay.site("other").connect()
    relay.source.replace(replace(PROJECTION, sites=PROJECTION.sites[1:]))
    assert await ended(stream) == BAD_SIGNATURE
    await relay.ended("site", "refused")
    await other.settle()


async def test_a_new_key_of_a_site_ends_streams_under_the_old_one(relay: RelayUnderTest) -> None:
    stream = await relay.site().connect()
    relay.source.replace(with_site(ProjectedSite("demo", keys_of("new").public)))
    assert await ended(stream) == BAD_SIGNATURE
    await (await relay.site(keys=keys_of("new")).connect()).settle()


async def test_a_retiring_key_serves_until_its_window_closes(serve: Serve) -> None:
    """By time alone: nobody changes the projection when it does."""
    link = SuccessionLink(keys_of("demo").public, bytes(64))
    site = ProjectedSite("demo", keys_of("new").public, (link,), START_MS + 30_000)
    async with serve(projection=with_site(site)) as relay:
        old, new = await relay.site().connect(), await relay.site(keys=keys_of("new")).connect()
        device = await relay.daemon().connect(limit=2)
        await relay.enqueue("named-by-the-old-key")
        await device.next("granted")
        await relay.pass_time(29_999, alive=[old, new])
        await relay.clock.advance_async(1)
        assert await ended(old) == BAD_SIGNATURE
        await new.settle()
        await relay.ended("site", "refused")


async def test_a_site_that_moves_to_a_new_key_keeps_its_streams_while_the_window_is_open(
    relay: RelayUnderTest,
) -> None:
    stream, device = await relay.site().connect(), await relay.daemon().connect()
    link = SuccessionLink(keys_of("demo").public, b"s" * 64)
    site = ProjectedSite("demo", keys_of("new").public, (link,), START_MS + 30_000)
    relay.source.replace(with_site(site))
    entry = (await device.next("sites_changed")).directory.sites[0]
    assert entry.key_id == keys_of("new").key_id
    assert entry.succeeds[0].identity.identity == keys_of("demo").public.identity
    assert entry.succeeds[0].signature == b"s" * 64
    assert entry.retiring_until_time.ToMilliseconds() == START_MS + 30_000
    await stream.settle()
    await relay.pass_time(30_000)
    assert await ended(stream) == BAD_SIGNATURE


async def test_a_new_consent_brings_work_that_waits(relay: RelayUnderTest) -> None:
    relay.source.replace(replace(PROJECTION, consents=()))
    stream = await relay.daemon().connect(limit=1)
    await relay.enqueue("job-1", audience=job_pb2.AUDIENCE_PRIVATE)
    await stream.send(heartbeat=session_pb2.Heartbeat())
    relay.source.replace(replace(PROJECTION, consents=(Consent("alice", "demo"),)))
    assert (await stream.next("granted")).stub.id == "job-1"
