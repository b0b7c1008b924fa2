"""Opening a stream: challenge, signed hello, welcome."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import grpc
import grpc.aio

from sealwork.session.v1 import session_pb2
from service_common.client_frames import OutboundFrames
from service_common.client_session_types import Hello, SessionPlane
from service_common.client_stream import ClientStream, StreamHandler
from service_common.clocks import Clock
from service_common.deadlines import within
from service_common.errors import ServiceError
from service_common.signing import Signer, sign_session
from service_common.statuses import error_from_call

HANDSHAKE_SECONDS: Final = 10.0

_StreamCall = grpc.aio.StreamStreamCall[Any, Any]


async def open_stream(
    channel: grpc.aio.Channel,
    plane: SessionPlane,
    handler: StreamHandler,
    hello: Callable[[], Hello | Awaitable[Hello]],
    *,
    caller: str,
    signer: Signer,
    clock: Clock,
) -> ClientStream:
    """Open a stream and prove who we are; the stream that is returned has not been started.

    Args:
        channel: Where to open it.
        plane: Which stream.
        handler: Of the stream.
        hello: Asked for once the server has sent its challenge, so that it is up to date.
        caller: Whom the hello names.
        signer: The caller's identity.
        clock: Times the answers.

    Raises:
        ServiceError: The stream was refused or lost, or the server was silent for ten seconds. A server that
            has its most streams open on this connection is silent.
    """
    call: _StreamCall = channel.stream_stream(plane.method, _as_it_is, plane.read_frame)()
    try:
        return await _greet(call, plane, handler, hello, caller=caller, signer=signer, clock=clock)
    except grpc.aio.AioRpcError as error:
        raise error_from_call(error) from None
    except BaseException:
        call.cancel()
        raise


async def _greet(
    call: _StreamCall,
    plane: SessionPlane,
    handler: StreamHandler,
    hello: Callable[[], Hello | Awaitable[Hello]],
    *,
    caller: str,
    signer: Signer,
    clock: Clock,
) -> ClientStream:
    challenge, _ = await _awaited(call, "challenge", clock)
    answered = hello()
    said = answered if isinstance(answered, Hello) else await answered
    signature = sign_session(signer, plane.method, caller, challenge.challenge.nonce, said.body)
    signed = session_pb2.SignedHello(hello=said.body, signature=signature)
    outbound = OutboundFrames()
    try:
        outbound.add(plane.item(hello=signed).SerializeToString(), control=True)
    except ValueError as error:
        # Another try would say the same.
        raise ServiceError(
            grpc.StatusCode.INVALID_ARGUMENT, "PROTOCOL_VIOLATION", f"the hello is too large: {error}"
        ) from None
    # The stream may have ended while the hello was drawn up. What it ended with is read next.
    with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.InternalError, grpc.aio.UsageError):
        await call.write(outbound.take(ack_seq=0))
    answer, rest = await _awaited(call, "welcome", clock)
    return ClientStream(
        call,
        plane,
        handler,
        answer.welcome,
        clock=clock,
        credit=said.credit,
        outbound=outbound,
        first_items=tuple(rest),
    )


async def _awaited(call: _StreamCall, arm: str, clock: Clock) -> tuple[Any, Iterable[Any]]:
    """Return the first item with this arm, and the items behind it in its frame."""
    try:
        return await within(clock, HANDSHAKE_SECONDS, _read_until(call, arm))
    except TimeoutError:
        raise ServiceError(
            grpc.StatusCode.DEADLINE_EXCEEDED, "", f"no {arm} came within {HANDSHAKE_SECONDS:.0f} seconds"
        ) from None


async def _read_until(call: _StreamCall, arm: str) -> tuple[Any, Iterable[Any]]:
    frame: Any
    while (frame := await call.read()) is not grpc.aio.EOF:
        for position, item in enumerate(() if frame is None else frame.items):
            if item.WhichOneof("item") == arm:
                return item, frame.items[position + 1 :]
    raise ServiceError(grpc.StatusCode.UNAVAILABLE, "", f"the stream ended before the {arm}")


def _as_it_is(frame: bytes) -> bytes:
    return frame
