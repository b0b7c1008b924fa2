"""What strangers can do to pairing: nothing that costs anybody else a device, a code or a secret."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from relay_service.client.keys import Keys
from relay_service.pairing import PairingSettings
from sealwork.relay.v1 import pairing_pb2
from service_common.errors import ServiceError
from tests.relay_service.attacks.peers import from_address
from tests.relay_service.raw_client import Refusal, method_of
from tests.relay_service.raw_pairing import (
    APPROVED,
    EXPIRED,
    PENDING,
    PROTOCOL,
    NewDevice,
    Registrar,
    public_message,
    refusal_of,
)
from tests.relay_service.relay_fixture import START_MS, RelayUnderTest, keys_of, serving

START = method_of("DaemonPlaneService", "StartPairing")
FLOOD = 10_000
AT_ONCE = 100
# Starts that an address has at once.
ALLOWED = 10


@pytest.fixture
async def relay() -> AsyncIterator[RelayUnderTest]:
    async with serving(pairing=PairingSettings(control_plane_key=bytes(range(32)))) as running:
        running.server.pairing.register = Registrar(running.source).register
        yield running


def device_at(relay: RelayUnderTest, name: str = "victim") -> NewDevice:
    return NewDevice(relay.channel, relay.clock.now_ms, keys_of(name))


async def approve(relay: RelayUnderTest, user_code: str) -> str:
    return await relay.server.pairing.approve(user_code, "alice", "operator")


async def test_nobody_pairs_in_the_name_of_another_key(relay: RelayUnderTest) -> None:
    """It would end the victim's code, and tell the thief what the approval of that key brings."""
    victim, thief = device_at(relay), device_at(relay, "thief")
    started = await victim.start()
    with_own_proof = await refusal_of(thief.start(device=public_message(victim.keys)))
    assert (with_own_proof.code, with_own_proof.reason) == (
        grpc.StatusCode.UNAUTHENTICATED,
        "BAD_SIGNATURE",
    )
    assert (await victim.poll(started.device_code)).state == PENDING
    assert len(await relay.server.pairing.pending()) == 1


async def test_a_recorded_start_is_not_taken_twice(relay: RelayUnderTest) -> None:
    victim = device_at(relay)
    recorded = victim.introduction()
    started = await victim.start(proof=recorded.proof)
    replayed = await refusal_of(victim.start(proof=recorded.proof))
    assert (replayed.code, replayed.reason) == (grpc.StatusCode.UNAUTHENTICATED, "REPLAYED")
    # Until the very end of the time in which it would be fresh.
    await relay.clock.advance_async(120_000)
    assert (await refusal_of(victim.start(proof=recorded.proof))).reason == "REPLAYED"
    await relay.clock.advance_async(1)
    assert (await refusal_of(victim.start(proof=recorded.proof))).reason == "CLOCK_SKEW"
    assert (await victim.poll(started.device_code)).state == PENDING


async def test_a_proof_for_later_is_not_taken_twice_either(relay: RelayUnderTest) -> None:
    victim = device_at(relay)
    proof = victim.proof(START_MS + 120_000)
    await victim.start(proof=proof)
    for _ in range(4):
        await relay.clock.advance_async(60_000)
        assert (await refusal_of(victim.start(proof=proof))).reason == "REPLAYED"


@pytest.mark.parametrize("decided", [False, True])
async def test_a_stolen_device_code_tells_nothing(relay: RelayUnderTest, decided: bool) -> None:
    victim, thief = device_at(relay), device_at(relay, "thief")
    started = await victim.start()
    if decided:
        await approve(relay, started.user_code)
    for signature in (thief.code(started.device_code)["signature"], bytes(64), b"\xff" * 64):
        polled = await refusal_of(thief.poll(started.device_code, signature=signature))
        watched = await thief.watch(started.device_code, signature=signature).refused()
        assert (polled.reason, watched.reason) == ("BAD_SIGNATURE", "BAD_SIGNATURE")
        assert polled.metadata == watched.metadata == ()
    expected = APPROVED if decided else PENDING
    assert (await victim.poll(started.device_code)).state == expected


async def test_the_signature_for_one_code_is_none_for_the_next(relay: RelayUnderTest) -> None:
    victim = device_at(relay)
    first = await victim.start()
    recorded = victim.code(first.device_code)["signature"]
    second = await victim.start()
    assert (await refusal_of(victim.poll(second.device_code, signature=recorded))).reason == "BAD_SIGNATURE"


async def test_guessed_device_codes_are_all_the_same(relay: RelayUnderTest) -> None:
    started = await device_at(relay).start()
    await approve(relay, started.user_code)
    stranger = device_at(relay, "stranger")
    guesses = [secrets.token_urlsafe(32) for _ in range(200)]
    # A letter next to the right one, its hash, and the user code in its place.
    near = started.device_code[:-1] + ("A" if started.device_code[-1] != "A" else "B")
    guesses += [near, started.user_code.ljust(43, "A")]
    answers = await asyncio.gather(*(stranger.poll(guess) for guess in guesses))
    assert all(answer == pairing_pb2.PollPairingResponse(state=EXPIRED) for answer in answers)


async def test_guessed_user_codes_approve_nothing(relay: RelayUnderTest) -> None:
    """Only the operator can guess at all."""
    started = await device_at(relay).start()
    near = started.user_code[:-1] + ("0" if started.user_code[-1] != "0" else "1")
    for guess in (near, started.user_code.replace("-", ""), "", started.device_code, "*"):
        with pytest.raises(ServiceError) as caught:
            await approve(relay, guess)
        assert caught.value.reason == "PAIRING_NOT_FOUND"
    assert relay.source.current.device("paired-4") is None


async def test_an_expired_code_is_approved_no_more(relay: RelayUnderTest) -> None:
    victim = device_at(relay)
    started = await victim.start()
    await relay.clock.advance_async(600_000)
    with pytest.raises(ServiceError) as caught:
        await approve(relay, started.user_code)
    assert caught.value.reason == "PAIRING_NOT_FOUND"
    assert (await victim.poll(started.device_code)).state == EXPIRED
    assert not any(device.identity == victim.keys.public for device in relay.source.current.devices)


async def test_an_approved_code_lets_nobody_else_in(relay: RelayUnderTest) -> None:
    victim, thief = device_at(relay), device_at(relay, "thief")
    runner_id = await approve(relay, (await victim.start()).user_code)
    stream = await relay.daemon(runner_id, keys=victim.keys).connect()
    impostor = relay.daemon(runner_id, keys=thief.keys).open()
    await relay.daemon(runner_id, keys=thief.keys).greet(impostor)
    refusal = await impostor.end()
    assert refusal is not None
    assert refusal.reason == "BAD_SIGNATURE"
    await stream.settle()


async def flood(relay: RelayUnderTest, channel: Any) -> list[str]:
    """Starts ten thousand pairings from one address; the reasons of the refusals."""
    method = channel.unary_unary(START)
    waiting = asyncio.Semaphore(AT_ONCE)
    reasons: list[str] = []

    async def start(body: bytes) -> None:
        async with waiting:
            try:
                await method(body, metadata=PROTOCOL, timeout=60)
            except grpc.aio.AioRpcError as error:
                reasons.append(Refusal.of_call(error.code(), error.trailing_metadata()).reason)

    attackers = [NewDevice(channel, relay.clock.now_ms, Keys.generate()) for _ in range(20)]
    bodies = [attacker.introduction(label="l" * 120).SerializeToString() for attacker in attackers]
    for body in bodies[:ALLOWED]:
        await start(body)
    # Behind the bound, so that no proof is looked at twice in whichever order the server takes them up.
    await asyncio.gather(*(start(bodies[number % len(bodies)]) for number in range(ALLOWED, FLOOD)))
    return reasons


async def test_ten_thousand_starts_from_one_address_shut_nobody_out(relay: RelayUnderTest) -> None:
    async with (
        from_address("127.0.0.9", relay.server.address) as way,
        grpc.aio.insecure_channel(way) as channel,
    ):
        early = NewDevice(channel, relay.clock.now_ms, keys_of("early"))
        late = NewDevice(channel, relay.clock.now_ms, keys_of("late"))
        early_code = await early.start()
        flooding = asyncio.create_task(flood(relay, relay.channel))
        late_code = await late.start()
        reasons = await flooding
        assert reasons == ["PAIRINGS_AT_CAPACITY"] * (FLOOD - ALLOWED)

        # Ten codes and a bucket are all that the flood has left behind.
        desk = relay.server.pairing
        assert len(relay.store.pairings) == 12
        assert len(desk._admission._rates) == 2
        for device, started in ((early, early_code), (late, late_code)):
            await approve(relay, started.user_code)
            assert (await device.poll(started.device_code)).state == APPROVED


async def test_one_address_cannot_take_all_places(relay: RelayUnderTest) -> None:
    """A patient attacker, who starts as often as is allowed for as long as a code lives."""
    reasons = []
    for _ in range(60):
        await relay.clock.advance_async(10_000)
        for _ in range(2):
            attacker = NewDevice(relay.channel, relay.clock.now_ms, Keys.generate())
            try:
                await attacker.start()
            except grpc.aio.AioRpcError as error:
                reasons.append(Refusal.of_call(error.code(), error.trailing_metadata()).reason)
    # Ten at once, and one each six seconds after that.
    assert reasons == ["PAIRINGS_AT_CAPACITY"] * 12
    assert len(await relay.server.pairing.pending()) == 108
