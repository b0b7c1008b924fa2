"""A server that a test plays by hand: it sees every frame of a client and answers what it likes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from grpc_status import rpc_status

from sealwork.session.v1 import session_pb2
from service_common.errors import ServiceError
from tests.harness.waiting import eventually

DOMAIN = "test.sealwork.dev"
NONCE = bytes(range(16))

UnaryAnswer = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Plane:
    """The messages of the plane that is played."""

    service: str
    request: Any
    response: Any
    item: Any
    hello: Any

    @property
    def method(self) -> str:
        return f"/{self.service}/Session"


class ScriptedStream:
    """One stream of a client."""

    def __init__(self, plane: Plane, context: Any) -> None:
        self.plane = plane
        self.context = context
        self.frames: list[Any] = []
        self.sizes: list[int] = []
        self.at_end = asyncio.Event()
        self.over = asyncio.Event()
        self.gone = asyncio.Event()
        self.status: Any = None
        self.news = asyncio.Event()
        self._seq = 0
        self._read = 0
        # The library takes one write at a time, and a test may speak while calls are being answered.
        self._writing = asyncio.Lock()

    async def pump(self) -> None:
        while (raw := await self.context.read()) is not grpc.aio.EOF:
            self.sizes.append(len(raw))
            self.frames.append(self.plane.request.FromString(raw))
            self.news.set()
        self.at_end.set()

    def items(self, arm: str) -> list[Any]:
        """All items of one kind so far."""
        return [
            getattr(item, arm)
            for frame in self.frames
            for item in frame.items
            if item.WhichOneof("item") == arm
        ]

    async def next_item(self, arm: str, *, after: int = 0) -> Any:
        """Waits for the item of that kind with that many before it."""
        await eventually(lambda: len(self.items(arm)) > after, 5, f"an item {arm}, so far {self.frames}")
        return self.items(arm)[after]

    async def send(self, *items: Any, seq: int | None = None) -> None:
        async with self._writing:
            self._seq = self._seq + 1 if seq is None else seq
            await self.context.write(self.plane.response(seq=self._seq, items=items).SerializeToString())

    async def send_raw(self, frame: bytes) -> None:
        async with self._writing:
            await self.context.write(frame)

    async def challenge(self) -> None:
        await self.send(self.plane.item(challenge=session_pb2.Challenge(nonce=NONCE)))

    async def welcome(self, *more: Any, **limits: Any) -> Any:
        """Goes through the hello and returns it."""
        await self.challenge()
        signed = await self.next_item("hello")
        hello = self.plane.hello.FromString(signed.hello)
        await self.send(self.plane.item(welcome=make_welcome(**limits)), *more)
        return hello

    def end(self, error: ServiceError | None = None) -> None:
        """Ends the stream, with OK or with a status."""
        self.status = None if error is None else rpc_status.to_status(error.to_status(DOMAIN))
        self.over.set()

    def end_bare(self, code: grpc.StatusCode, text: str) -> None:
        """Ends the stream as a proxy would: a code and a text, no details."""
        self.status = (code, text)
        self.over.set()


def make_welcome(
    *,
    heartbeat: float = 15,
    liveness: float = 45,
    renew: float = 20,
    lease: float = 60,
    inline: int = 32_768,
    frame: int = 65_536,
    session_id: str = "s-1",
) -> session_pb2.Welcome:
    return session_pb2.Welcome(
        session_id=session_id,
        session_epoch=1,
        limits=session_pb2.SessionLimits(
            heartbeat_interval=duration(heartbeat),
            liveness_timeout=duration(liveness),
            lease=duration(lease),
            renew_interval=duration(renew),
            frame_bytes=frame,
            inline_body_bytes=inline,
            leases_per_frame=500,
        ),
    )


def duration(seconds: float) -> Duration:
    return Duration(seconds=int(seconds), nanos=round(seconds % 1 * 1_000_000_000))


@dataclass
class ScriptedServer:
    """The server; `streams` are those that clients have opened, in order."""

    plane: Plane
    address: str = ""
    streams: list[ScriptedStream] = field(default_factory=list)
    unary: dict[str, UnaryAnswer] = field(default_factory=dict)
    unary_seen: list[tuple[str, dict[str, Any], bytes]] = field(default_factory=list)

    async def stream(self, number: int = 0, timeout: float = 5) -> ScriptedStream:
        """Waits for the stream with that many before it."""
        await eventually(lambda: len(self.streams) > number, timeout, f"stream {number}")
        return self.streams[number]

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        if details.method == self.plane.method:
            return grpc.stream_stream_rpc_method_handler(self._session)
        if details.method in self.unary:
            return grpc.unary_unary_rpc_method_handler(self._unary(details.method))
        return None

    def seen(self, name: str) -> list[tuple[str, dict[str, Any], bytes]]:
        return [call for call in self.unary_seen if call[0].endswith("/" + name)]

    async def _session(self, _requests: Any, context: Any) -> None:
        stream = ScriptedStream(self.plane, context)
        self.streams.append(stream)
        pump = asyncio.ensure_future(stream.pump())
        try:
            await stream.over.wait()
        finally:
            stream.gone.set()
            pump.cancel()
        if isinstance(stream.status, tuple):
            await context.abort(*stream.status)
        if stream.status is not None:
            await context.abort_with_status(stream.status)

    def _unary(self, method: str) -> Any:
        async def answer(request: bytes, context: Any) -> bytes:
            metadata = dict(context.invocation_metadata())
            self.unary_seen.append((method, metadata, request))
            try:
                return self.unary[method](request)
            except ServiceError as error:
                await context.abort_with_status(rpc_status.to_status(error.to_status(DOMAIN)))
                raise

        return answer


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, server: ScriptedServer) -> None:
        self._server = server

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._server.service(handler_call_details)


@asynccontextmanager
async def scripted_server(plane: Plane) -> AsyncIterator[ScriptedServer]:
    scripted = ScriptedServer(plane)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Handlers(scripted),))
    scripted.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield scripted
    finally:
        for stream in scripted.streams:
            stream.over.set()
        with contextlib.suppress(asyncio.CancelledError):
            await server.stop(0)
