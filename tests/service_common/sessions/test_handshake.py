"""Challenge and signed hello, without a socket. The signature is written out once more here."""

import asyncio
import hashlib
from base64 import urlsafe_b64encode
from types import SimpleNamespace
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from nacl.signing import SigningKey

from sealwork.relay.v1 import site_plane_pb2
from sealwork.session.v1 import session_pb2
from service_common.clocks import ManualClock
from service_common.errors import ServiceError
from service_common.sessions.handshake import Greeted, Handshake
from tests.service_common.sessions.fakes import FakeContext, settle

METHOD = "/sealwork.test.v1.TestService/Session"
NONCE = bytes(range(16))
KEY, OTHER_KEY = SigningKey(bytes(range(32))), SigningKey(bytes(range(1, 33)))
Hello = site_plane_pb2.SiteHello


class Directory:
    """Knows one caller, with an older key and the present one."""

    refusal: ServiceError | None = None

    def keys_for(self, method: str, caller: str) -> tuple[bytes, ...] | None:
        assert method == METHOD
        known = (OTHER_KEY.verify_key.encode(), KEY.verify_key.encode())
        return known if caller == "site-1" else None

    def refusal_for(self, method: str, caller: str) -> ServiceError | None:
        return self.refusal


def signed(hello: bytes, nonce: bytes = NONCE, caller: str = "site-1", key: SigningKey = KEY) -> bytes:
    nonce_text = urlsafe_b64encode(nonce).rstrip(b"=").decode()
    lines = ("sealwork/v1/session", METHOD, caller, nonce_text, hashlib.sha256(hello).hexdigest())
    return key.sign("\n".join(lines).encode()).signature


def frame(
    hello: bytes, signature: bytes, seq: int = 1, *rest: Any
) -> site_plane_pb2.SitePlaneServiceSessionRequest:
    item = site_plane_pb2.SiteItem(hello=session_pb2.SignedHello(hello=hello, signature=signature))
    return site_plane_pb2.SitePlaneServiceSessionRequest(seq=seq, items=[item, *rest])


def hello_bytes(**fields: Any) -> bytes:
    given: dict[str, Any] = {"site_id": "site-1", "process_id": "p", "protocol_version": 1}
    return Hello(**(given | fields)).SerializeToString()


class Greeting:
    """A handshake under way."""

    def __init__(self, clock: ManualClock, directory: Directory | None = None) -> None:
        self.context = FakeContext()
        handshake: Handshake[Hello] = Handshake(
            METHOD,
            Hello,
            lambda hello: hello.site_id,
            directory or Directory(),
            clock=clock,
            hello_ms=10_000,
            frame_bytes=1_000,
            random_bytes=lambda count: NONCE[:count],
        )
        self.task: asyncio.Task[Greeted[Hello]] = asyncio.create_task(
            handshake.greet(self.context, lambda challenge: challenge)  # type: ignore[arg-type]
        )

    async def answer(self, first: Any) -> Greeted[Hello]:
        self.context.reading.put_nowait(first)
        return await asyncio.wait_for(self.task, 5)

    async def refused(self, first: Any) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(ServiceError) as caught:
            await self.answer(first)
        return caught.value.code, caught.value.reason


VIOLATION = (grpc.StatusCode.INVALID_ARGUMENT, "PROTOCOL_VIOLATION")
BAD_SIGNATURE = (grpc.StatusCode.UNAUTHENTICATED, "BAD_SIGNATURE")


async def test_a_proven_hello(manual_clock: ManualClock) -> None:
    greeting = Greeting(manual_clock)
    await settle()
    (challenge,) = cast("list[Any]", greeting.context.written)
    assert isinstance(challenge, session_pb2.Challenge)
    assert challenge.nonce == NONCE
    extra = site_plane_pb2.SiteItem(credit=session_pb2.Credit(limit=4))
    hello = hello_bytes()
    greeted = await greeting.answer(frame(hello, signed(hello), 7, extra))
    assert (greeted.caller, greeted.seq, greeted.items) == ("site-1", 7, (extra,))
    assert greeted.hello.process_id == "p"
    assert greeted.key == KEY.verify_key.encode()
    assert manual_clock.pending == 0


async def test_any_key_in_force_will_do(manual_clock: ManualClock) -> None:
    hello = hello_bytes()
    greeted = await Greeting(manual_clock).answer(frame(hello, signed(hello, key=OTHER_KEY)))
    assert greeted.key == OTHER_KEY.verify_key.encode()


async def test_hello_bytes_are_taken_as_they_were_sent(manual_clock: ManualClock) -> None:
    """Another spelling of the same message is signed as it is spelt: fields in another order, twice."""
    hello = hello_bytes(site_id="someone-else") + hello_bytes()
    assert (await Greeting(manual_clock).answer(frame(hello, signed(hello)))).caller == "site-1"


@pytest.mark.parametrize(
    "signature",
    [
        signed(hello_bytes(), nonce=bytes(16)),
        signed(hello_bytes(), caller="site-2"),
        signed(hello_bytes(), key=SigningKey(bytes(32))),
        signed(hello_bytes(process_id="q")),
        b"",
        bytes(64),
        signed(hello_bytes()) + b"x",
    ],
    ids=["nonce", "caller", "key", "bytes", "none", "zeros", "long"],
)
async def test_any_other_signature(manual_clock: ManualClock, signature: bytes) -> None:
    assert await Greeting(manual_clock).refused(frame(hello_bytes(), signature)) == BAD_SIGNATURE


async def test_an_unknown_caller_is_refused_like_a_wrong_signature(manual_clock: ManualClock) -> None:
    hello = hello_bytes(site_id="nobody")
    refused = await Greeting(manual_clock).refused(frame(hello, signed(hello, caller="nobody")))
    assert refused == BAD_SIGNATURE


async def test_a_refusal_is_told_after_the_proof(manual_clock: ManualClock) -> None:
    directory = Directory()
    directory.refusal = ServiceError(grpc.StatusCode.PERMISSION_DENIED, "DEVICE_REVOKED", "gone")
    hello = hello_bytes()
    unproven = await Greeting(manual_clock, directory).refused(frame(hello, bytes(64)))
    assert unproven == BAD_SIGNATURE
    proven = await Greeting(manual_clock, directory).refused(frame(hello, signed(hello)))
    assert proven == (grpc.StatusCode.PERMISSION_DENIED, "DEVICE_REVOKED")


@pytest.mark.parametrize("version", [0, 2, 2**32 - 1])
async def test_another_version(manual_clock: ManualClock, version: int) -> None:
    hello = hello_bytes(protocol_version=version)
    refused = await Greeting(manual_clock).refused(frame(hello, signed(hello)))
    assert refused == (grpc.StatusCode.FAILED_PRECONDITION, "UNSUPPORTED_PROTOCOL_VERSION")


@pytest.mark.parametrize(
    "first",
    [
        grpc.aio.EOF,
        ServiceError(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID", "no frame"),
        site_plane_pb2.SitePlaneServiceSessionRequest(),
        site_plane_pb2.SitePlaneServiceSessionRequest(items=[site_plane_pb2.SiteItem()]),
        frame(b"\xff\xff", bytes(64)),
        frame(bytes(1_000), bytes(64)),
    ],
    ids=["end", "no-frame", "no-item", "unknown-item", "no-hello", "too-large"],
)
async def test_anything_but_a_hello(manual_clock: ManualClock, first: Any) -> None:
    assert await Greeting(manual_clock).refused(first) == VIOLATION
    assert manual_clock.pending == 0


async def test_no_hello_in_time(manual_clock: ManualClock) -> None:
    greeting = Greeting(manual_clock)
    await settle()
    manual_clock.advance(9_999)
    await settle()
    assert not greeting.task.done()
    manual_clock.advance(1)
    with pytest.raises(ServiceError) as caught:
        await greeting.task
    assert (caught.value.code, caught.value.reason) == (
        grpc.StatusCode.DEADLINE_EXCEEDED,
        "HELLO_TIMEOUT",
    )
    assert greeting.task.cancelling() == 0


async def test_a_client_that_left_is_no_timeout(manual_clock: ManualClock) -> None:
    greeting = Greeting(manual_clock)
    await settle()
    greeting.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await greeting.task
    assert manual_clock.pending == 0


async def test_a_failure_of_the_directory_is_not_hidden(manual_clock: ManualClock) -> None:
    broken = SimpleNamespace(keys_for=lambda method, caller: 1 / 0)
    hello = hello_bytes()
    with pytest.raises(ZeroDivisionError):
        await Greeting(manual_clock, broken).answer(frame(hello, signed(hello)))  # type: ignore[arg-type]
