"""A device that pairs at one relay, and a person who decides at another."""

import pytest

from tests.harness.waiting import eventually
from tests.relay_service.raw_pairing import APPROVED, DENIED, EXPIRED, PENDING, NewDevice, Registrar
from tests.relay_service.relay_fixture import keys_of
from tests.relay_service.replicas.two_relays import TwoRelays


def device_at(relay: TwoRelays, name: str = "new device") -> NewDevice:
    return NewDevice(relay.device_channel, relay.clock.now_ms, keys_of(name))


async def test_a_device_is_approved_at_the_other_relay(relay: TwoRelays) -> None:
    relay.server.pairing.register = Registrar(relay.source).register
    device = device_at(relay)
    started = await device.start()
    watch = device.watch(started.device_code)
    assert (await watch.next()).state == PENDING
    (waiting,) = await relay.server.pairing.pending()
    assert waiting.user_code == started.user_code
    runner_id = await relay.server.pairing.approve(started.user_code, "alice", "operator")
    end = await watch.ends_with()
    assert (end.state, end.approval.runner_id) == (APPROVED, runner_id)
    assert (await device.poll(started.device_code)).state == APPROVED


async def test_a_device_is_denied_at_the_other_relay(relay: TwoRelays) -> None:
    device = device_at(relay)
    started = await device.start()
    watch = device.watch(started.device_code)
    await watch.next()
    await relay.server.pairing.deny(started.user_code, "operator")
    assert (await watch.ends_with()).state == DENIED


async def test_a_device_asks_at_the_other_relay(relay: TwoRelays) -> None:
    device = device_at(relay)
    started = await device.start()
    there = NewDevice(relay.channel, relay.clock.now_ms, device.keys)
    assert (await there.poll(started.device_code)).state == PENDING
    again = await there.start()
    assert (await device.poll(started.device_code)).state == EXPIRED
    assert (await device.poll(again.device_code)).state == PENDING


async def test_an_approval_waits_for_the_projection_to_arrive(relay: TwoRelays) -> None:
    """The word that a pairing was approved may be quicker than the projection that has the device."""
    device = device_at(relay)
    started = await device.start()
    watch = device.watch(started.device_code)
    await watch.next()

    async def register(*_: object) -> str:
        return "paired-4"

    relay.server.pairing.register = register
    await relay.server.pairing.approve(started.user_code, "alice", "operator")
    assert (await watch.next()).state == PENDING
    registrar = Registrar(relay.source)
    assert await registrar.register("alice", device.keys.public, "desk", "operator") == "paired-4"
    end = await watch.ends_with()
    assert (end.state, end.approval.runner_id) == (APPROVED, "paired-4")


async def test_a_relay_that_leaves_sends_its_watchers_to_the_other(relay: TwoRelays) -> None:
    device = device_at(relay)
    started = await device.start()
    watch = device.watch(started.device_code)
    await watch.next()
    await relay.device_server.pairing.leave()
    assert (await watch.refused()).reason == "SERVER_DRAINING"
    there = NewDevice(relay.channel, relay.clock.now_ms, device.keys).watch(started.device_code)
    assert (await there.next()).state == PENDING
    await relay.server.pairing.deny(started.user_code, "operator")
    assert (await there.ends_with()).state == DENIED


@pytest.mark.parametrize("count", [20])
async def test_many_wait_at_both_relays(relay: TwoRelays, count: int) -> None:
    relay.server.pairing.register = Registrar(relay.source).register
    devices = [device_at(relay, f"device {number}") for number in range(count)]
    codes = []
    for number, device in enumerate(devices):
        if number and number % 10 == 0:
            await relay.clock.advance_async(60_000)
        codes.append(await device.start())
    watches = [device.watch(code.device_code) for device, code in zip(devices, codes, strict=True)]
    await eventually(lambda: len(relay.device_server.pairing._watchers) == count)
    for code in codes:
        await relay.server.pairing.approve(code.user_code, "alice", "operator")
    ends = [await watch.ends_with() for watch in watches]
    assert [end.state for end in ends] == [APPROVED] * count
    assert len({end.approval.runner_id for end in ends}) == count
