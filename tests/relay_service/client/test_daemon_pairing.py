"""A device pairs: what it shows, whom it believes, and what it does when the relay goes away."""

import asyncio
from typing import Any

import grpc
import pytest

from relay_service.client.connection import Connection
from relay_service.client.daemon_pairing import PairingEnded, PairingError, PairingEvents, pair_device
from relay_service.client.errors import RelayError
from relay_service.client.keys import Keys
from relay_service.client.wire import identity_to_proto
from relay_service.core.identity import encode_base64url
from sealwork.relay.v1 import pairing_pb2, site_directory_pb2
from service_common.errors import ServiceError
from service_common.verification import verify_signature
from tests.harness.waiting import eventually
from tests.relay_service.client.real_relay import (
    DEVICE_KEYS,
    SITE_KEYS,
    STRANGER_KEYS,
    RealRelay,
    real_relay,
)
from tests.relay_service.client.scripted_pairing import approval, pairing_at, scripted_relay

APPROVED = pairing_pb2.PAIRING_STATE_APPROVED
DENIED = pairing_pb2.PAIRING_STATE_DENIED
EXPIRED = pairing_pb2.PAIRING_STATE_EXPIRED
AWAY = ServiceError(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE", "away")
NO_STREAMS = ServiceError(grpc.StatusCode.UNIMPLEMENTED, "", "no streams here")


# -- with a script ----------------------------------------------------------------------


async def test_the_start_proves_who_asks() -> None:
    async with scripted_relay() as (script, address), pairing_at(address) as device:
        await eventually(lambda: device.codes)
        (request,) = script.started
        identity = DEVICE_KEYS.public.identity
        lines = (
            "sealwork/v1/pairing",
            "/sealwork.relay.v1.DaemonPlaneService/StartPairing",
            encode_base64url(identity),
            "1700000000000",
            encode_base64url(request.proof.nonce),
        )
        assert len(request.proof.nonce) == 16
        assert verify_signature(identity, "\n".join(lines).encode(), request.proof.signature)
        assert (request.label, request.device.identity) == ("desk", identity)
        assert (device.codes[0].user_code, device.codes[0].deadline) == ("AAAA-0001", 600.0)
        assert "AAAAAAAAA" not in repr(device.codes[0])


async def test_an_approval_ends_it_at_once() -> None:
    async with scripted_relay() as (script, address), pairing_at(address) as device:
        script.approval = approval(control_plane_key=bytes(range(32)))
        await eventually(lambda: script.watching == 1)
        script.decide(APPROVED)
        async with asyncio.timeout(10):
            paired = await device.pairing
        assert (paired.runner_id, paired.owner) == ("desk-1", "alice")
        assert paired.pins == {SITE_KEYS.key_id: SITE_KEYS.public}
        assert paired.control_plane_key == bytes(range(32))
        assert script.calls == ["StartPairing", "WatchPairing"]
        assert device.troubles == []


async def test_an_approval_without_sites_is_one() -> None:
    async with scripted_relay() as (script, address), pairing_at(address) as device:
        script.approval = approval(directory=None)
        script.decide(APPROVED)
        paired = await device.end()
        assert (paired.pins, paired.control_plane_key) == ({}, None)


@pytest.mark.parametrize(("state", "denied"), [(DENIED, True), (EXPIRED, False)])
async def test_a_no_ends_it_at_once(state: Any, denied: bool) -> None:
    async with scripted_relay() as (script, address), pairing_at(address) as device:
        await eventually(lambda: script.watching == 1)
        script.decide(state)
        with pytest.raises(PairingEnded) as caught:
            await device.end()
        assert caught.value.denied is denied
        assert len(device.codes) == 1


@pytest.mark.parametrize("trouble", [NO_STREAMS, ServiceError(grpc.StatusCode.INTERNAL, "", "RST_STREAM")])
async def test_without_streams_it_polls(trouble: ServiceError) -> None:
    async with scripted_relay() as (script, address), pairing_at(address) as device:
        script.refusing["WatchPairing"] = trouble
        await device.passing(lambda: script.calls.count("PollPairing") >= 4, "polls")
        script.decide(APPROVED)
        assert (await device.end()).runner_id == "desk-1"
        assert device.troubles == [f"{RelayError(trouble)}; still waiting"]


async def test_a_stream_on_which_nothing_comes_is_as_good_as_none() -> None:
    async with scripted_relay() as (script, address), pairing_at(address) as device:
        script.mute = True
        await device.passing(lambda: script.calls.count("PollPairing") >= 1, "a poll")
        assert device.clock.monotonic() >= 5.0
        script.state = APPROVED
        assert (await device.end()).runner_id == "desk-1"


async def test_a_stream_that_falls_silent_is_asked_again() -> None:
    async with scripted_relay() as (script, address), pairing_at(address) as device:
        await device.passing(lambda: script.calls.count("WatchPairing") >= 2, "another stream")
        assert device.clock.monotonic() >= 45.0
        assert script.calls[:3] == ["StartPairing", "WatchPairing", "PollPairing"]


async def test_trouble_that_may_pass_is_waited_out() -> None:
    async with scripted_relay() as (script, address), pairing_at(address) as device:
        script.refusals = {"WatchPairing": [AWAY, AWAY], "PollPairing": [AWAY] * 3}
        await device.passing(lambda: script.calls.count("WatchPairing") >= 3, "the third stream")
        script.decide(APPROVED)
        assert (await device.end()).runner_id == "desk-1"
        assert device.troubles == [f"{RelayError(AWAY)}; still waiting"]


@pytest.mark.parametrize("method", ["WatchPairing", "PollPairing"])
async def test_trouble_that_stays_ends_it(method: str) -> None:
    refusal = ServiceError(grpc.StatusCode.UNAUTHENTICATED, "BAD_SIGNATURE", "no")
    async with scripted_relay() as (script, address), pairing_at(address) as device:
        script.refusing = {"WatchPairing": NO_STREAMS, method: refusal}
        with pytest.raises(RelayError, match="BAD_SIGNATURE"):
            await device.end()


async def test_a_relay_that_says_nothing_any_more_lets_the_code_expire() -> None:
    async with scripted_relay() as (script, address), pairing_at(address) as device:
        script.refusing = {"WatchPairing": AWAY, "PollPairing": AWAY}
        await eventually(lambda: device.codes)

        def passed() -> bool:
            device.clock.advance(2_000)
            return device.pairing.done()

        await eventually(passed, 30)
        with pytest.raises(PairingEnded):
            await device.pairing
        assert device.clock.monotonic() >= 600.0


async def test_a_relay_that_has_forgotten_is_asked_for_another_code() -> None:
    async with scripted_relay() as (script, address), pairing_at(address) as device:
        await eventually(lambda: script.watching == 1)
        script.decide(EXPIRED)
        with pytest.raises(PairingEnded):
            # Forgotten, and no contact was lost: that is another process with the same keys. No time passes,
            # as silence of the watch would be a loss of contact.
            async with asyncio.timeout(20):
                await device.pairing
        assert len(device.codes) == 1

    async with scripted_relay() as (script, address), pairing_at(address) as device:
        script.refusing = {"WatchPairing": AWAY, "PollPairing": AWAY}
        await device.passing(lambda: script.calls.count("PollPairing") >= 1, "trouble")
        script.state = EXPIRED
        script.refusing = {}
        await device.passing(lambda: len(device.codes) == 2, "another code")
        script.decide(APPROVED)
        assert (await device.end()).runner_id == "desk-1"
        assert [code.user_code for code in device.codes] == ["AAAA-0001", "AAAA-0002"]


async def test_a_full_relay_is_asked_again() -> None:
    full = ServiceError(
        grpc.StatusCode.RESOURCE_EXHAUSTED, "PAIRINGS_AT_CAPACITY", "full", retry_after_ms=6_000
    )
    async with scripted_relay() as (script, address):
        script.refusals = {"StartPairing": [full, full]}
        script.state = APPROVED
        async with pairing_at(address) as device:
            await device.end()
            assert device.clock.monotonic() >= 12.0
            assert len(device.troubles) == 2


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.UNIMPLEMENTED, "PAIRING_NOT_OFFERED"),
        (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID"),
        (grpc.StatusCode.UNAUTHENTICATED, "CLOCK_SKEW"),
        (grpc.StatusCode.FAILED_PRECONDITION, "DAEMON_BELOW_FLOOR"),
    ],
)
async def test_a_start_that_is_refused_is_not_repeated(code: grpc.StatusCode, reason: str) -> None:
    async with scripted_relay() as (script, address):
        script.refusing = {"StartPairing": ServiceError(code, reason, "no")}
        async with pairing_at(address) as device:
            with pytest.raises(RelayError, match=reason):
                await device.end()
        assert script.calls == ["StartPairing"]


def _site(key_id: str, keys: Keys, encryption: bytes | None = None) -> site_directory_pb2.ConsentedSite:
    identity = identity_to_proto(keys.public)
    identity.encryption = encryption or identity.encryption
    return site_directory_pb2.ConsentedSite(key_id=key_id, identity=identity)


GOOD_SITE = _site(SITE_KEYS.key_id, SITE_KEYS)


@pytest.mark.parametrize(
    "fields",
    [
        {"runner_id": ""},
        {"runner_id": "a\x1b[2Jb"},
        {"owner": "o" * 129},
        {"control_plane_key": b"short"},
        {"directory": [GOOD_SITE, _site(SITE_KEYS.key_id, STRANGER_KEYS)]},
        {"directory": [GOOD_SITE, _site(STRANGER_KEYS.key_id, STRANGER_KEYS, SITE_KEYS.public.encryption)]},
        {"directory": [GOOD_SITE, site_directory_pb2.ConsentedSite(key_id=SITE_KEYS.key_id)]},
    ],
)
async def test_an_approval_that_does_not_verify_is_dropped_as_a_whole(fields: dict[str, Any]) -> None:
    if "directory" in fields:
        fields = {"directory": site_directory_pb2.SiteDirectory(sites=fields["directory"])}
    async with scripted_relay() as (script, address), pairing_at(address) as device:
        script.approval = approval(**fields)
        script.decide(APPROVED)
        with pytest.raises(PairingError, match="nothing was kept") as caught:
            await device.end()
        assert str(caught.value).isprintable()


# -- with a relay -----------------------------------------------------------------------


class Shown:
    """What a device shows, as a person waits for it."""

    def __init__(self) -> None:
        self.codes: asyncio.Queue[str] = asyncio.Queue()
        self.events = PairingEvents(lambda code: self.codes.put_nowait(code.user_code), lambda _: None)

    async def code(self) -> str:
        async with asyncio.timeout(20):
            return await self.codes.get()


async def approve(relay: RealRelay, user_code: str) -> str:
    return await relay.server.pairing.approve(user_code, "alice", "operator")


async def test_a_device_pairs_with_a_relay() -> None:
    shown = Shown()
    async with real_relay() as relay:
        work = pair_device(Connection(relay.address), STRANGER_KEYS, "desk", shown.events)
        pairing = asyncio.create_task(work)
        runner_id = await approve(relay, await shown.code())
        async with asyncio.timeout(20):
            paired = await pairing
    assert (paired.runner_id, paired.owner) == (runner_id, "alice")
    assert paired.pins == {SITE_KEYS.key_id: SITE_KEYS.public}


async def test_a_restart_of_the_relay_is_survived() -> None:
    shown = Shown()
    async with real_relay() as relay:
        work = pair_device(Connection(relay.address), STRANGER_KEYS, "desk", shown.events)
        pairing = asyncio.create_task(work)
        first = await shown.code()
        await eventually(lambda: len(relay.server.pairing._watchers) == 1)
        await relay.restart()
        second = await shown.code()
        assert second != first
        runner_id = await approve(relay, second)
        async with asyncio.timeout(20):
            assert (await pairing).runner_id == runner_id
