"""One stream to the relay with nothing around it, for loads that must not be bound by their driver."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any, Self

import grpc
import grpc.aio
from google.protobuf.message import Message

from bench.peer_relay.party import Party
from bench.variant import VariantFailedError
from sealwork.session.v1 import session_pb2
from service_common.client_frames import OutboundFrames
from service_common.client_session_types import SessionPlane
from service_common.client_writer import StreamWriter
from service_common.signing import sign_session

Receive = Callable[[str, Any], None]
_HANDSHAKE_SECONDS = 20.0


class Line:
    """A stream that is open: items go out in frames, and every item that comes in is handed to one function.

    The client library's stream does more: it sends heartbeats, times silence, and gives every call a future.
    """

    def __init__(self, call: "grpc.aio.StreamStreamCall[Any, Any]", plane: SessionPlane) -> None:
        self._call = call
        self._outbound = OutboundFrames()
        # The credit of the hello is whatever the caller states; more of it is sent as an item like any other.
        self._writer = StreamWriter(call, plane.item, self._outbound, monotonic, credit=0)
        self._reader: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, channel: grpc.aio.Channel, plane: SessionPlane, party: Party, hello: Message, receive: Receive
    ) -> Self:
        """Opens a stream, proves who it is of, and reads from then on.

        Raises:
            VariantFailedError: the relay did not welcome it.
        """
        call: grpc.aio.StreamStreamCall[Any, Any]
        call = channel.stream_stream(plane.method, _as_it_is, plane.read_frame)()
        line = cls(call, plane)
        try:
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                rest = await line._greet(plane, party, hello.SerializeToString())
        except (TimeoutError, grpc.aio.AioRpcError) as error:
            call.cancel()
            raise VariantFailedError(f"the relay did not welcome {party.caller_id}: {error}") from error
        line._reader = asyncio.create_task(line._read(rest, receive))
        return line

    def send(self, item: Message) -> None:
        """Queues an item; it travels with whatever else is queued in this turn of the event loop."""
        self._writer.queue(item.SerializeToString(), control=False)

    async def close(self) -> None:
        """Ends the stream without a word; the relay loses nothing by that."""
        self._writer.stop()
        self._call.cancel()
        if self._reader is not None:
            # However it ended: whoever waited for its items has noticed that none came.
            await asyncio.gather(self._reader, return_exceptions=True)

    async def _greet(self, plane: SessionPlane, party: Party, hello: bytes) -> list[Any]:
        challenge = (await self._frame()).items[0].challenge
        signature = sign_session(party.keys.signer, plane.method, party.caller_id, challenge.nonce, hello)
        self.send(plane.item(hello=session_pb2.SignedHello(hello=hello, signature=signature)))
        first = await self._frame()
        return list(first.items)

    async def _frame(self) -> Any:
        frame: Any = await self._call.read()
        if frame is grpc.aio.EOF:
            raise VariantFailedError(f"the relay ended a stream: {await self._call.details()}")
        return frame

    async def _read(self, items: list[Any], receive: Receive) -> None:
        while True:
            for item in items:
                receive(item.WhichOneof("item"), item)
            frame = await self._frame()
            self._writer.ack_seq = frame.seq
            items = frame.items


def _as_it_is(frame: bytes) -> bytes:
    return frame
