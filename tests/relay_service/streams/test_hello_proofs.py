"""Who opened a stream: nothing but the named caller's own key over this very nonce will do."""

from dataclasses import replace
from typing import Any

import grpc
import pytest

from relay_service.core.projection import ProjectedDevice
from tests.relay_service.raw_client import RawParty, RawStream, Refusal
from tests.relay_service.relay_fixture import (
    PROJECTION,
    RelayUnderTest,
    keys_of,
    serving,
    with_device,
)

BAD_SIGNATURE = (grpc.StatusCode.UNAUTHENTICATED, "BAD_SIGNATURE")


async def refused(stream: RawStream) -> tuple[grpc.StatusCode, str]:
    refusal = await stream.end()
    assert refusal is not None
    return refusal.code, refusal.reason


async def _wrong_key(relay: RelayUnderTest) -> Refusal | None:
    return await _greeted(relay.daemon(keys=keys_of("runner-2")))


async def _unknown_caller(relay: RelayUnderTest) -> Refusal | None:
    return await _greeted(relay.daemon("nobody", keys=keys_of("runner-1")))


async def _greeted(caller: RawParty, **fields: Any) -> Refusal | None:
    stream = caller.open()
    await caller.greet(stream, **fields)
    return await stream.end()


async def test_a_wrong_key_and_an_unknown_device_get_one_answer(relay: RelayUnderTest) -> None:
    answers = {await _wrong_key(relay), await _unknown_caller(relay)}
    assert len(answers) == 1
    (refusal,) = answers
    assert refusal is not None
    assert (refusal.code, refusal.reason) == BAD_SIGNATURE
    assert "runner" not in refusal.message
    assert relay.ends("daemon") == {}


async def test_a_device_cannot_speak_as_a_site() -> None:
    """Not even as a site of its own name, nor with a signature for its own plane."""
    named_alike = with_device(ProjectedDevice("alice", "demo", keys_of("runner-1").public))
    async with serving(projection=named_alike) as relay:
        site = relay.site("demo", keys=keys_of("runner-1"))
        stream = site.open()
        await site.greet(stream)
        assert await refused(stream) == BAD_SIGNATURE

        daemon, stream = relay.daemon("demo", keys=keys_of("runner-1")), site.open()
        challenge = await stream.next("challenge")
        signed = daemon.sign(site.hello().SerializeToString(), challenge.nonce)
        await stream.send(hello=signed)
        assert await refused(stream) == BAD_SIGNATURE


@pytest.mark.parametrize("wrong", ["nonce", "method", "caller", "bytes", "no-signature", "short"])
async def test_a_signature_over_anything_else(relay: RelayUnderTest, wrong: str) -> None:
    daemon = relay.daemon()
    stream = daemon.open()
    nonce = (await stream.next("challenge")).nonce
    hello = daemon.hello().SerializeToString()
    signed = daemon.sign(hello, nonce)
    match wrong:
        case "nonce":
            signed = daemon.sign(hello, bytes(16))
        case "method":
            signed = daemon.sign(hello, nonce, method="ClaimJobs")
        case "caller":
            named = daemon.hello(runner_id="runner-2").SerializeToString()
            signed = daemon.sign(named, nonce)
        case "bytes":
            signed.hello += daemon.hello(process_id="other").SerializeToString()
        case "no-signature":
            signed.signature = b""
        case _:
            signed.signature = signed.signature[:63]
    await stream.send(hello=signed)
    assert await refused(stream) == BAD_SIGNATURE


async def test_a_hello_cannot_be_replayed_on_another_stream(relay: RelayUnderTest) -> None:
    daemon = relay.daemon()
    first, second = daemon.open(), daemon.open()
    signed = daemon.sign(daemon.hello().SerializeToString(), (await first.next("challenge")).nonce)
    await first.send(hello=signed)
    await first.next("welcome")
    await second.next("challenge")
    await second.send(hello=signed)
    assert await refused(second) == BAD_SIGNATURE
    await first.settle()


async def test_a_revoked_device_is_told_so_only_when_it_has_proved_its_key() -> None:
    revoked = with_device(replace(PROJECTION.devices[0], revoked=True))
    async with serving(projection=revoked) as relay:
        proven = await _greeted(relay.daemon())
        assert proven is not None
        assert (proven.code, proven.reason) == (grpc.StatusCode.PERMISSION_DENIED, "DEVICE_REVOKED")
        unproven = await _wrong_key(relay)
        assert unproven is not None
        assert (unproven.code, unproven.reason) == BAD_SIGNATURE
