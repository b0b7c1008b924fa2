"""The first three frames of every stream: challenge, signed hello, welcome."""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from sealwork.session.v1 import session_pb2
from service_common.clocks import Clock
from service_common.errors import ServiceError
from service_common.request_verifier import KeyDirectory
from service_common.sessions.endings import protocol_violation
from service_common.verification import session_bytes, verify_signature

PROTOCOL_VERSION = 1


class Hello(Protocol):
    """What the hellos of all planes have in common."""

    process_id: str
    client_version: str
    protocol_version: int

    def ParseFromString(self, serialized: bytes) -> int:
        """As every protobuf message does."""


HelloT = TypeVar("HelloT", bound=Hello)


@dataclass(frozen=True, slots=True)
class Greeted(Generic[HelloT]):
    """A proven hello: who said it, proven by which key, and what followed in the same frame.

    The key is empty where a certificate was the proof.
    """

    hello: HelloT
    caller: str
    key: bytes
    seq: int
    items: tuple[Any, ...]


class Handshake(Generic[HelloT]):
    """Proves who opened a stream, over a nonce that serves this stream only.

    Args:
        method: full method name, which the signature covers.
        new_hello: makes an empty hello of the plane.
        caller_of: the caller that a hello names.

    Attributes:
        certified: the caller that the peer's certificate names, None for none; it takes the place of a
            signature that is empty.
    """

    def __init__(
        self,
        method: str,
        new_hello: Callable[[], HelloT],
        caller_of: Callable[[HelloT], str],
        keys: KeyDirectory,
        *,
        clock: Clock,
        hello_ms: int,
        frame_bytes: int,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self.certified: Callable[[grpc.aio.ServicerContext[Any, Any]], str | None] = lambda _: None
        self._method = method
        self._new_hello = new_hello
        self._caller_of = caller_of
        self._keys = keys
        self._clock = clock
        self._hello_seconds = hello_ms / 1000
        self._frame_bytes = frame_bytes
        self._random_bytes = random_bytes

    async def greet(
        self,
        context: grpc.aio.ServicerContext[Any, Any],
        challenge_frame: Callable[[session_pb2.Challenge], object],
    ) -> Greeted[HelloT]:
        """Challenges and checks.

        Raises:
            ServiceError: HELLO_TIMEOUT, PROTOCOL_VIOLATION, UNSUPPORTED_PROTOCOL_VERSION,
                BAD_SIGNATURE, or the directory's own refusal.
        """
        nonce = self._random_bytes(16)
        await context.write(challenge_frame(session_pb2.Challenge(nonce=nonce)))
        frame = await self._first_frame(context)
        signed = _signed_hello(frame)
        hello = self._parse(signed.hello)
        _check_version(hello.protocol_version)
        caller = self._caller_of(hello)
        if not signed.signature and self.certified(context) == caller:
            key = b""
        else:
            key = self._prove(caller, nonce, signed)
        refusal = self._keys.refusal_for(self._method, caller)
        if refusal is not None:
            raise refusal
        return Greeted(hello, caller, key, frame.seq, tuple(frame.items)[1:])

    async def _first_frame(self, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            frame = await self._read(context)
        except ServiceError as error:
            if error.reason != "FIELD_INVALID":
                raise
            raise protocol_violation("the first frame is no frame of this plane") from None
        if frame is grpc.aio.EOF:
            raise protocol_violation("the stream ended before its hello")
        # The caller is unknown yet, so nothing it sends may cost more than a frame.
        if frame.ByteSize() > self._frame_bytes:
            raise protocol_violation("the frame is over the limit in bytes")
        return frame

    async def _read(self, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        task = asyncio.current_task()
        late = False

        def expire() -> None:
            nonlocal late
            late = True
            if task is not None:
                task.cancel()

        timer = self._clock.call_later(self._hello_seconds, expire)
        try:
            return await context.read()
        except asyncio.CancelledError:
            if not late or task is None:
                raise
            task.uncancel()
            raise hello_timeout() from None
        finally:
            timer.cancel()

    def _parse(self, serialized: bytes) -> HelloT:
        hello = self._new_hello()
        try:
            hello.ParseFromString(serialized)
        except DecodeError:
            raise protocol_violation("the hello is not a message of this plane") from None
        return hello

    def _prove(self, caller: str, nonce: bytes, signed: session_pb2.SignedHello) -> bytes:
        digest = hashlib.sha256(signed.hello).hexdigest()
        message = session_bytes(self._method, caller, nonce, digest)
        for key in self._keys.keys_for(self._method, caller) or ():
            if verify_signature(key, message, signed.signature):
                return key
        raise ServiceError(
            grpc.StatusCode.UNAUTHENTICATED,
            "BAD_SIGNATURE",
            "the caller is unknown here or its signature does not verify; check identity and key",
        )


def _signed_hello(frame: Any) -> session_pb2.SignedHello:
    items = getattr(frame, "items", ())
    if not items or items[0].WhichOneof("item") != "hello":
        raise protocol_violation("the first item of a stream must be a signed hello")
    hello: session_pb2.SignedHello = items[0].hello
    return hello


def _check_version(version: int) -> None:
    if version != PROTOCOL_VERSION:
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION,
            "UNSUPPORTED_PROTOCOL_VERSION",
            f"this server speaks protocol version {PROTOCOL_VERSION}; upgrade the client if it is older, "
            "the server if it is newer",
            metadata={"supported": str(PROTOCOL_VERSION)},
        )


def hello_timeout() -> ServiceError:
    """No hello came in time."""
    return ServiceError(
        grpc.StatusCode.DEADLINE_EXCEEDED,
        "HELLO_TIMEOUT",
        "no hello came in time; send SignedHello right after Challenge",
    )
