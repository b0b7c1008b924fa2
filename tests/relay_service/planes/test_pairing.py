"""Pairing by code at one relay, over its socket."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2

from relay_service.client.keys import Keys
from relay_service.pairing import PairingSettings
from sealwork.relay.v1 import pairing_pb2
from service_common.errors import ServiceError
from tests.relay_service.raw_pairing import (
    EXPIRED,
    PENDING,
    NewDevice,
    Registrar,
    public_message,
    refusal_of,
)
from tests.relay_service.relay_fixture import START_MS, RelayUnderTest, keys_of, serving, timestamp

CONTROL_KEY = bytes(range(32))
SETTINGS = PairingSettings(control_plane_key=CONTROL_KEY, starts_per_minute=1_000)


@pytest.fixture
async def relay() -> AsyncIterator[RelayUnderTest]:
    async with serving(pairing=SETTINGS) as running:
        running.server.pairing.register = Registrar(running.source).register
        yield running


def device_at(relay: RelayUnderTest, name: str = "new device") -> NewDevice:
    return NewDevice(relay.channel, relay.clock.now_ms, keys_of(name))


async def approve(relay: RelayUnderTest, user_code: str, owner: str = "alice") -> str:
    return await relay.server.pairing.approve(user_code, owner, "operator")


async def refused(call: Any) -> str:
    with pytest.raises(ServiceError) as caught:
        await call
    return caught.value.reason


# -- starting ---------------------------------------------------------------------------


async def test_a_start_is_answered_with_two_codes(relay: RelayUnderTest) -> None:
    started = await device_at(relay).start()
    assert len(started.device_code) == 43
    assert len(started.user_code) == 9
    assert started.user_code[4] == "-"
    assert started.verification_url == ""
    assert started.expire_time == timestamp(START_MS + 600_000)
    assert started.expires_in.ToMilliseconds() == 600_000
    assert started.poll_interval.ToMilliseconds() == 2_000


async def test_a_device_that_waits_is_listed(relay: RelayUnderTest) -> None:
    first = await device_at(relay).start(label="Büro ✎", platform=pairing_pb2.PLATFORM_WIN32)
    await relay.clock.advance_async(1)
    second = await device_at(relay, "other device").start()
    shown = await relay.server.pairing.pending()
    assert [pending.user_code for pending in shown] == [first.user_code, second.user_code]
    assert shown[0].key_id == keys_of("new device").key_id
    assert (shown[0].label, shown[0].platform, shown[0].client_version) == ("Büro ✎", "win32", "1.4.0")
    assert shown[0].expires_at_ms == START_MS + 600_000


async def test_starting_again_replaces_the_code(relay: RelayUnderTest) -> None:
    device = device_at(relay)
    first = await device.start()
    second = await device.start()
    assert (await device.poll(first.device_code)).state == EXPIRED
    assert (await device.poll(second.device_code)).state == PENDING
    assert await refused(approve(relay, first.user_code)) == "PAIRING_NOT_FOUND"


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("client_version", "", "client_version"),
        ("client_version", "v" * 129, "client_version"),
        ("label", "", "label"),
        ("label", "   ", "label"),
        ("label", "l" * 121, "label"),
        ("label", "two\nlines", "label"),
        ("label", "\x1b[2J", "label"),
        ("label", "evil \u202egpj.exe", "label"),
        ("platform", pairing_pb2.PLATFORM_UNSPECIFIED, "platform"),
        ("platform", 99, "platform"),
        ("device", None, "device"),
        ("proof", None, "proof.issue_time"),
        ("proof", pairing_pb2.PairingProof(issue_time=timestamp(START_MS)), "proof.nonce"),
        ("matrix", [{}], "matrix[0].kind"),
    ],
)
async def test_a_bad_field_is_named(relay: RelayUnderTest, field: str, value: Any, named: str) -> None:
    refusal = await refusal_of(device_at(relay).start(**{field: value}))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    assert named in refusal.fields


async def test_a_label_may_have_120_characters(relay: RelayUnderTest) -> None:
    await device_at(relay).start(label="ü" * 120)


async def test_an_inconsistent_identity_is_refused(relay: RelayUnderTest) -> None:
    device = device_at(relay)
    message = public_message(device.keys)
    message.encryption = keys_of("another").public.encryption
    refusal = await refusal_of(device.start(device=message))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "IDENTITY_INCONSISTENT")


@pytest.mark.parametrize(("skew_ms", "reason"), [(-120_001, "CLOCK_SKEW"), (120_001, "CLOCK_SKEW")])
async def test_a_proof_is_of_now(relay: RelayUnderTest, skew_ms: int, reason: str) -> None:
    device = device_at(relay)
    refusal = await refusal_of(device.start(proof=device.proof(START_MS + skew_ms)))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAUTHENTICATED, reason)
    assert dict(refusal.metadata) == {"server_time_ms": str(START_MS), "max_skew_ms": "120000"}


@pytest.mark.parametrize("skew_ms", [-120_000, 120_000])
async def test_a_proof_may_be_two_minutes_off(relay: RelayUnderTest, skew_ms: int) -> None:
    device = device_at(relay)
    await device.start(proof=device.proof(START_MS + skew_ms))


async def test_the_verification_url_is_passed_on() -> None:
    url = "https://relay.example/pair"
    async with serving(pairing=PairingSettings(verification_url=url)) as relay:
        assert (await device_at(relay).start()).verification_url == url


async def test_a_relay_may_offer_no_pairing() -> None:
    async with serving(pairing=PairingSettings(offered=False)) as relay:
        device = device_at(relay)
        code = "A" * 43
        watching = device.watch(code).refused()
        answers = [
            await refusal_of(device.start()),
            await refusal_of(device.poll(code)),
            await watching,
        ]
        assert {(answer.code, answer.reason) for answer in answers} == {
            (grpc.StatusCode.UNIMPLEMENTED, "PAIRING_NOT_OFFERED")
        }
        assert await refused(relay.server.pairing.pending()) == "PAIRING_NOT_OFFERED"


async def test_the_protocol_version_is_required(relay: RelayUnderTest) -> None:
    body = device_at(relay).introduction().SerializeToString()
    method = relay.channel.unary_unary("/sealwork.relay.v1.DaemonPlaneService/StartPairing")
    refusal = await refusal_of(method(body, timeout=10))
    assert refusal.reason == "UNSUPPORTED_PROTOCOL_VERSION"


# -- not too many -----------------------------------------------------------------------


async def test_ten_starts_a_minute_from_one_address() -> None:
    async with serving() as relay:
        keys = [Keys.generate() for _ in range(11)]
        devices = [NewDevice(relay.channel, relay.clock.now_ms, each) for each in keys]
        for device in devices[:10]:
            await device.start()
        refusal = await refusal_of(devices[10].start())
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "PAIRINGS_AT_CAPACITY")
        assert refusal.retry_after_ms == 6_000
        await relay.clock.advance_async(6_000)
        await devices[10].start()
        assert (await refusal_of(devices[0].start())).retry_after_ms == 6_000


async def test_a_limit_is_named_for_programs() -> None:
    async with serving(pairing=PairingSettings(starts_per_minute=1)) as relay:
        device = device_at(relay)
        await device.start()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await device.start()
        raw = dict(caught.value.trailing_metadata() or ())["grpc-status-details-bin"]
        assert isinstance(raw, bytes)
        status = status_pb2.Status.FromString(raw)
        names = [detail.type_url.rpartition(".")[2] for detail in status.details]
        assert names == ["ErrorInfo", "RetryInfo", "QuotaFailure"]
        failure = error_details_pb2.QuotaFailure.FromString(status.details[2].value)
        (violation,) = failure.violations
        assert violation.subject == "pairings that one address starts"
        assert violation.description == "at most 1 a minute"


async def test_five_hundred_may_wait(relay: RelayUnderTest) -> None:
    for number in range(500):
        await device_at(relay, f"device {number}").start()
        if number % 100 == 99:
            await relay.clock.advance_async(10_000)
    refusal = await refusal_of(device_at(relay, "device 500").start())
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "PAIRINGS_AT_CAPACITY")
    assert refusal.retry_after_ms == 30_000
    await device_at(relay, "device 3").start()
    await relay.pass_time(600_000)
    await device_at(relay, "device 500").start()
