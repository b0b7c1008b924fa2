"""The least version of a daemon, and the version that it is offered."""

from typing import Any

import grpc
import pytest

from relay_service.pairing import PairingSettings
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from tests.relay_service.planes.scene import claim
from tests.relay_service.raw_client import Refusal
from tests.relay_service.raw_pairing import NewDevice, refusal_of
from tests.relay_service.relay_fixture import RelayUnderTest, keys_of, ref, serving

FLOOR = "1.2.0-rc.2"


async def greeted(relay: RelayUnderTest, version: str, **fields: Any) -> Refusal | None:
    """The refusal of a hello that names this version; None when it is welcomed."""
    device = relay.daemon()
    stream = device.open()
    await device.greet(stream, client_version=version, **fields)
    try:
        await stream.next("welcome")
    except AssertionError:
        return await stream.end()
    stream.call.cancel()
    return None


def below_floor(refusal: Refusal | None) -> None:
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "DAEMON_BELOW_FLOOR")
    assert refusal.metadata == (("floor", "1.2.0-rc.2"),)
    assert refusal.retry_after_ms is None


@pytest.mark.parametrize("version", ["1.1.9", "1.2.0-alpha", "1.2.0-rc.1", "0.9.0", "v1.2.0-beta.11"])
async def test_older_daemons_are_told_the_floor(version: str) -> None:
    async with serving(daemon_floor=FLOOR, pairing=PairingSettings()) as relay:
        below_floor(await greeted(relay, version))
        new = NewDevice(relay.channel, relay.clock.now_ms, keys_of("new device"))
        below_floor(await refusal_of(new.start(client_version=version)))
        assert await relay.server.pairing.pending() == []


@pytest.mark.parametrize("version", ["1.2.0-rc.2", "1.2.0-rc.10", "1.2.0", "1.10.0", "2.0.0-alpha"])
async def test_daemons_from_the_floor_on_are_served(version: str) -> None:
    async with serving(daemon_floor=FLOOR, pairing=PairingSettings()) as relay:
        assert await greeted(relay, version) is None
        new = NewDevice(relay.channel, relay.clock.now_ms, keys_of("new device"))
        assert (await new.start(client_version=version)).user_code


@pytest.mark.parametrize("version", ["0", "nightly", "1.2", "1.1.9.dev3", "2024-11-30"])
async def test_what_is_no_version_passes(version: str) -> None:
    """The floor is for daemons that can be told to upgrade, and not a lock."""
    async with serving(daemon_floor=FLOOR) as relay:
        assert await greeted(relay, version) is None


async def test_a_daemon_below_the_floor_is_not_there_and_keeps_nothing() -> None:
    """Its hello renews no lease, takes nothing back and makes it no candidate for work."""
    async with serving(daemon_floor=FLOOR) as relay:
        await relay.enqueue("job-1")
        (granted,) = (await relay.daemon().call("ClaimJobs", claim())).granted
        everyone = await relay.store.everyone()
        await relay.clock.advance_async(5_000)
        below_floor(await greeted(relay, "1.1.9", limit=5, inventory={"leases": [ref(granted)]}))
        assert await relay.store.everyone() == everyone
        request = daemon_plane_pb2.RenewLeasesRequest(leases=[ref(granted)])
        (verdict,) = (await relay.daemon().call("RenewLeases", request)).verdicts
        assert verdict.state == job_pb2.LEASE_STATE_ACTIVE
        await relay.enqueue("job-2")
        assert await relay.state("job-2") == "queued"
        assert relay.open_streams("daemon") == 0


async def test_the_key_is_asked_for_before_the_version() -> None:
    """What a hello is refused for is first of all its signature."""
    async with serving(daemon_floor=FLOOR) as relay:
        thief = relay.daemon(keys=keys_of("stranger"))
        stream = thief.open()
        await thief.greet(stream, client_version="1.0.0")
        refusal = await stream.end()
        assert refusal is not None
        assert refusal.reason == "BAD_SIGNATURE"


@pytest.mark.parametrize(
    ("version", "offered"),
    [("1.2.0", True), ("1.3.0-rc.1", True), ("1.4.0", True), ("nightly", True), ("1.3.0", False)],
)
async def test_the_offered_version_travels_in_the_welcome(version: str, offered: bool) -> None:
    """To all but those that run it; whoever is newer is offered the way back."""
    async with serving(daemon_floor=FLOOR, offered_version="1.3.0") as relay:
        device = relay.daemon()
        stream = device.open()
        await device.greet(stream, client_version=version)
        welcome = await stream.next("welcome")
        assert welcome.HasField("offered_version") is offered
        assert welcome.offered_version == ("1.3.0" if offered else "")


async def test_a_site_is_neither_turned_away_nor_offered_a_version() -> None:
    async with serving(daemon_floor=FLOOR, offered_version="1.3.0") as relay:
        site = relay.site()
        stream = site.open()
        await site.greet(stream, client_version="0.0.1")
        assert not (await stream.next("welcome")).HasField("offered_version")
