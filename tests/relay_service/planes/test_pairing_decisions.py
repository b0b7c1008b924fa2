"""What becomes of a pairing, over the relay's socket: decisions, and those who wait for them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import pytest

from relay_service.core.projection import Consent, ProjectedDevice
from relay_service.pairing import PairingSettings
from sealwork.relay.v1 import pairing_pb2
from service_common.errors import ServiceError
from tests.harness.waiting import eventually
from tests.relay_service.raw_pairing import (
    APPROVED,
    DENIED,
    EXPIRED,
    PENDING,
    NewDevice,
    Registrar,
    refusal_of,
)
from tests.relay_service.relay_fixture import RelayUnderTest, Serve, keys_of

CONTROL_KEY = bytes(range(32))
SETTINGS = PairingSettings(control_plane_key=CONTROL_KEY, starts_per_minute=1_000)


@pytest.fixture
async def relay(serve: Serve) -> AsyncIterator[RelayUnderTest]:
    async with serve(pairing=SETTINGS) as running:
        running.server.pairing.register = Registrar(running.source).register
        yield running


def device_at(relay: RelayUnderTest, name: str = "new device") -> NewDevice:
    return NewDevice(relay.daemon().channel, relay.clock.now_ms, keys_of(name))


async def approve(relay: RelayUnderTest, user_code: str, owner: str = "alice") -> str:
    return await relay.server.pairing.approve(user_code, owner, "operator")


async def waits(relay: RelayUnderTest) -> None:
    """The one call that follows a pairing waits for news, so that a leap of the clock is one for it.

    What it told last may be here before.
    """
    await eventually(lambda: [each.waiting for each in relay.server_of("daemon").pairing._watchers] == [True])


async def refused(call: Any) -> str:
    with pytest.raises(ServiceError) as caught:
        await call
    return caught.value.reason


# -- approval ---------------------------------------------------------------------------


async def test_an_approval_discloses_what_the_device_needs(relay: RelayUnderTest) -> None:
    device = device_at(relay)
    started = await device.start()
    before = await device.poll(started.device_code)
    assert before == pairing_pb2.PollPairingResponse(state=PENDING)

    runner_id = await approve(relay, f" {started.user_code.lower()}\n")

    after = await device.poll(started.device_code)
    assert after.state == APPROVED
    assert (after.approval.runner_id, after.approval.owner) == (runner_id, "alice")
    assert after.approval.control_plane_key == CONTROL_KEY
    sites = {site.key_id: site.awaiting_consent for site in after.approval.directory.sites}
    assert sites == {keys_of("demo").key_id: False, keys_of("other").key_id: False}


async def test_a_paused_consent_is_disclosed_as_such(relay: RelayUnderTest) -> None:
    consents = (Consent("carol", "demo", paused=True),)
    relay.source.replace(replace(relay.source.current, consents=consents))
    device = device_at(relay)
    started = await device.start()
    await approve(relay, started.user_code, "carol")
    (site,) = (await device.poll(started.device_code)).approval.directory.sites
    assert (site.key_id, site.awaiting_consent) == (keys_of("demo").key_id, True)


async def test_an_approval_without_any_site_is_one(relay: RelayUnderTest) -> None:
    device = device_at(relay)
    started = await device.start()
    await approve(relay, started.user_code, "nobody in particular")
    answer = await device.poll(started.device_code)
    assert answer.state == APPROVED
    assert len(answer.approval.directory.sites) == 0


async def test_the_paired_device_may_call(relay: RelayUnderTest) -> None:
    device = device_at(relay)
    started = await device.start()
    runner_id = await approve(relay, started.user_code)
    stream = await relay.daemon(runner_id, keys=device.keys).connect()
    await relay.enqueue("job-1")
    assert (await stream.next("granted")).stub.id == "job-1"


async def test_the_outcome_can_be_read_until_the_code_dies(relay: RelayUnderTest) -> None:
    device = device_at(relay)
    started = await device.start()
    await approve(relay, started.user_code)
    first = await device.poll(started.device_code)
    await relay.pass_time(599_999)
    assert await device.poll(started.device_code) == first
    await relay.pass_time(1)
    assert await device.poll(started.device_code) == pairing_pb2.PollPairingResponse(state=EXPIRED)


async def test_a_denied_device_learns_nothing(relay: RelayUnderTest) -> None:
    device = device_at(relay)
    started = await device.start()
    await relay.server.pairing.deny(started.user_code, "operator")
    assert await device.poll(started.device_code) == pairing_pb2.PollPairingResponse(state=DENIED)
    assert list(await relay.server.pairing.pending()) == []
    await relay.server.pairing.deny(started.user_code, "operator")
    assert await refused(approve(relay, started.user_code)) == "PAIRING_DECIDED"


async def test_lapsed_and_unknown_are_not_told_apart(relay: RelayUnderTest) -> None:
    device = device_at(relay)
    started = await device.start()
    await relay.pass_time(600_000)
    lapsed = await device.poll(started.device_code)
    unknown = await device.poll("A" * 43)
    assert lapsed == unknown == pairing_pb2.PollPairingResponse(state=EXPIRED)
    ends = [await device.watch(code).ends_with() for code in (started.device_code, "A" * 43)]
    assert ends == [pairing_pb2.WatchPairingResponse(state=EXPIRED)] * 2
    assert await refused(approve(relay, started.user_code)) == "PAIRING_NOT_FOUND"
    assert await refused(relay.server.pairing.deny(started.user_code, "operator")) == "PAIRING_NOT_FOUND"


async def test_approving_again_is_the_same_for_the_same_owner_alone(relay: RelayUnderTest) -> None:
    started = await device_at(relay).start()
    runner_id = await approve(relay, started.user_code)
    assert await approve(relay, started.user_code) == runner_id
    assert await refused(approve(relay, started.user_code, "bob")) == "PAIRING_DECIDED"
    assert await refused(relay.server.pairing.deny(started.user_code, "operator")) == "PAIRING_DECIDED"


async def test_an_approval_that_was_cut_short_is_completed(relay: RelayUnderTest) -> None:
    """The relay dies when the device is in the projection and its pairing does not say so yet."""
    device = device_at(relay)
    started = await device.start()
    registrar = Registrar(relay.source)
    runner_id = await registrar.register("alice", device.keys.public, "desk", "operator")
    assert await approve(relay, started.user_code) == runner_id
    assert (await device.poll(started.device_code)).approval.runner_id == runner_id


async def test_a_repeated_approval_brings_no_revoked_device_back(relay: RelayUnderTest) -> None:
    device = device_at(relay)
    started = await device.start()
    runner_id = await approve(relay, started.user_code)
    revoked = ProjectedDevice("alice", runner_id, device.keys.public, revoked=True)
    relay.source.replace(replace(relay.source.current, devices=(revoked,)))
    assert (await device.poll(started.device_code)).state == DENIED
    assert await refused(approve(relay, started.user_code)) == "PAIRING_DECIDED"
    assert (await refusal_of(device.start())).reason == "DEVICE_REVOKED"


async def test_what_cannot_be_registered_is_not_approved(relay: RelayUnderTest) -> None:
    async def fail(*_: object) -> str:
        raise ServiceError(grpc.StatusCode.FAILED_PRECONDITION, "PROJECTION_READ_ONLY", "no")

    relay.server.pairing.register = fail
    device = device_at(relay)
    started = await device.start()
    assert await refused(approve(relay, started.user_code)) == "PROJECTION_READ_ONLY"
    assert (await device.poll(started.device_code)).state == PENDING
    relay.server.pairing.register = Registrar(relay.source).register
    await approve(relay, started.user_code)


async def test_a_device_in_the_projection_is_approved_however_it_came_there(relay: RelayUnderTest) -> None:
    device = device_at(relay)
    started = await device.start()
    watch = device.watch(started.device_code)
    assert (await watch.next()).state == PENDING
    by_hand = ProjectedDevice("bob", "by-hand", device.keys.public)
    relay.source.replace(replace(relay.source.current, devices=(by_hand,)))
    end = await watch.ends_with()
    assert (end.state, end.approval.runner_id, end.approval.owner) == (APPROVED, "by-hand", "bob")
    assert list(await relay.server.pairing.pending()) == []
    assert await refused(approve(relay, started.user_code, "alice")) == "PAIRING_DECIDED"
    assert await approve(relay, started.user_code, "bob") == "by-hand"


async def test_a_known_device_that_pairs_again_is_approved_at_once(relay: RelayUnderTest) -> None:
    device = device_at(relay, "runner-1")
    started = await device.start()
    answer = await device.poll(started.device_code)
    assert (answer.state, answer.approval.runner_id) == (APPROVED, "runner-1")


# -- watching ---------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "state"), [("approve", APPROVED), ("deny", DENIED)])
async def test_a_watch_ends_at_once_with_the_decision(relay: RelayUnderTest, word: str, state: int) -> None:
    device = device_at(relay)
    started = await device.start()
    watch = device.watch(started.device_code)
    assert (await watch.next()).state == PENDING
    if word == "approve":
        await approve(relay, started.user_code)
    else:
        await relay.server.pairing.deny(started.user_code, "operator")
    assert (await watch.ends_with()).state == state


async def test_a_watch_ends_when_the_code_dies(relay: RelayUnderTest) -> None:
    device = device_at(relay)
    started = await device.start()
    watch = device.watch(started.device_code)
    await watch.next()
    await waits(relay)
    await relay.pass_time(600_000)
    # Only now: the end has to come within seconds of the machine's time, and that leap may take some of them.
    end = asyncio.ensure_future(watch.ends_with())

    async def ended() -> bool:
        # The relay may have begun to wait only after the leap, and looks again 15 s later.
        await relay.pass_time(15_000)
        return end.done()

    await eventually(ended)
    assert await end == pairing_pb2.WatchPairingResponse(state=EXPIRED)


async def test_a_watch_gives_a_sign_of_life_every_15_s(relay: RelayUnderTest) -> None:
    device = device_at(relay)
    watch = device.watch((await device.start()).device_code)
    await watch.next()
    for _ in range(3):
        await waits(relay)
        await relay.clock.advance_async(15_000)
        assert (await watch.next()).state == PENDING


async def test_a_watch_of_a_code_that_was_replaced_ends(relay: RelayUnderTest) -> None:
    device = device_at(relay)
    watch = device.watch((await device.start()).device_code)
    await watch.next()
    await waits(relay)
    await device.start()
    await relay.clock.advance_async(15_000)
    assert (await watch.ends_with()).state == EXPIRED


async def test_four_streams_wait_for_a_pairing(relay: RelayUnderTest) -> None:
    device = device_at(relay)
    started = await device.start()
    watches = [device.watch(started.device_code) for _ in range(4)]
    for watch in watches:
        await watch.next()
    refusal = await device.watch(started.device_code).refused()
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_SESSIONS")
    watches[0].call.cancel()
    await eventually(lambda: len(relay.server_of("daemon").pairing._watchers) == 3)
    watches[0] = device.watch(started.device_code)
    await approve(relay, started.user_code)
    ends = await asyncio.gather(*(watch.ends_with() for watch in watches))
    assert [end.state for end in ends] == [APPROVED] * 4
    assert len(relay.server_of("daemon").pairing._watchers) == 0


async def test_a_drain_ends_a_watch_with_a_word(relay: RelayUnderTest) -> None:
    device = device_at(relay)
    watch = device.watch((await device.start()).device_code)
    await watch.next()
    await relay.server_of("daemon").pairing.leave()
    refusal = await watch.refused()
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")


async def test_a_code_of_another_length_is_a_bad_field(relay: RelayUnderTest) -> None:
    refusal = await refusal_of(device_at(relay).poll("short", signature=b"short"))
    assert (refusal.reason, refusal.fields) == ("FIELD_INVALID", ("device_code", "signature"))
