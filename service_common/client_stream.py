"""One stream of a client, from its welcome to its end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

import grpc
import grpc.aio
from google.protobuf.message import Message

from sealwork.session.v1 import session_pb2
from service_common.client_calls import PendingCalls
from service_common.client_frames import OutboundFrames
from service_common.client_session_types import (
    EndCause,
    Hello,
    SessionLost,
    SessionPlane,
    StreamEnd,
    StreamLimits,
)
from service_common.client_writer import StreamWriter
from service_common.clocks import Clock, TimerHandle
from service_common.errors import ServiceError
from service_common.statuses import error_from_call, error_from_status

logger = logging.getLogger("sealwork.session")

GOODBYE_SECONDS: Final = 5.0
_REASON_CHARACTERS: Final = 128
# A timer that fires this much too late says that this process stood still, not that the server was silent.
_STALL_SECONDS: Final = 1.0


class StreamHandler(Protocol):
    """What a plane does with what it is told. Nothing here may block."""

    def received(self, stream: "ClientStream", arm: str, item: Any) -> None:
        """Handle one item of the plane."""

    def frame_handled(self, stream: "ClientStream") -> None:
        """Do what is due once all items of a frame have been handled."""


class ClientStream:
    """An accepted stream: items go out through one writer, replies find their calls, silence ends it.

    Attributes:
        welcome: The server's answer to the hello.
        limits: What the server enforces.
        drain: The server's request to move, once it has come.
        moving: Set together with `drain`, and at the end.
        end: How it ended, once it has.
        ended: Set together with `end`.
    """

    def __init__(
        self,
        call: "grpc.aio.StreamStreamCall[Any, Any]",
        plane: SessionPlane,
        handler: StreamHandler,
        welcome: session_pb2.Welcome,
        *,
        clock: Clock,
        credit: int,
        outbound: OutboundFrames,
        first_items: Sequence[Any] = (),
    ) -> None:
        """Take over a call right after its welcome; nothing runs before `start`.

        Args:
            credit: The credit that the hello stated.
            outbound: Carries on the numbering of frames.
            first_items: What came behind the welcome in its frame.
        """
        self.welcome = welcome
        self.limits = StreamLimits.of(welcome.limits)
        self.drain: session_pb2.DrainNotice | None = None
        self.moving = asyncio.Event()
        self.end: StreamEnd | None = None
        self.ended = asyncio.Event()
        outbound.frame_bytes = self.limits.frame_bytes
        self._call = call
        self._plane = plane
        self._handler = handler
        self._clock = clock
        self._writer = StreamWriter(call, plane.item, outbound, clock.monotonic, credit)
        self._calls = PendingCalls(plane)
        self._first_items = first_items
        self._given_up: EndCause | None = None
        self._reader: asyncio.Task[None] | None = None
        self._timer: TimerHandle | None = None
        self._opened_at = self._last_received = clock.monotonic()

    def start(self) -> None:
        """Handle what came with the welcome, and read on."""
        self._reader = asyncio.get_running_loop().create_task(self._serve())
        self._arm_timer()

    def send(self, item: Message, *, control: bool = False) -> None:
        """Queue an item; it travels with whatever else is queued in this pass of the event loop.

        Once the stream has ended it is dropped.

        Args:
            item: Of the plane's item class.
            control: Overtake what is not control.

        Raises:
            ValueError: It does not fit into a frame.
        """
        self._writer.queue(item.SerializeToString(), control=control)

    def request(self, arm: str, body: Message) -> "asyncio.Future[Any]":
        """Send a call and return the future of its answer.

        The future fails with the plane's error when the call was refused, and with `SessionLost` when no
        answer can come any more or none came in time. Cancelling it forgets the answer, not the call.

        Args:
            arm: Name of the request in the plane's call, and of the answer in its reply.
            body: The request.

        Raises:
            SessionLost: The stream has ended.
            BodyTooLarge: The body may not ride the session.
        """
        if not self._writer.open or self.end is not None:
            raise SessionLost("the stream has ended")
        item, answer = self._calls.add(
            arm, body, now=self._clock.monotonic(), inline_body_bytes=self.limits.inline_body_bytes
        )
        self._writer.queue(item, control=False)
        return answer

    def offer_credit(self, limit: int) -> None:
        """Let the server have pushed `limit` in all on this stream; it never goes down."""
        self._writer.offer_credit(limit)

    async def goodbye(self, reason: str, grace_seconds: float = GOODBYE_SECONDS) -> None:
        """End the stream cleanly; returns when it has ended, at the latest after the grace."""
        timer = self._clock.call_later(grace_seconds, lambda: self.abandon(EndCause.GOODBYE))
        try:
            if self._writer.open:
                farewell = self._plane.item(goodbye=session_pb2.Goodbye(reason=reason[:_REASON_CHARACTERS]))
                self._writer.finish(farewell.SerializeToString())
            await self.ended.wait()
        finally:
            timer.cancel()

    def abandon(self, cause: EndCause = EndCause.ABANDONED) -> None:
        """End the stream at once, without a word to the server."""
        if self.end is None and self._given_up is None:
            self._given_up = cause
            self._writer.stop()
            self._call.cancel()

    # -- reading ------------------------------------------------------------------------

    async def _serve(self) -> None:
        cause, error = EndCause.ABANDONED, None
        try:
            cause, error = await self._read()
        finally:
            self._close(StreamEnd(cause, self._clock.monotonic() - self._opened_at, error))

    async def _read(self) -> tuple[EndCause, ServiceError | None]:
        task = asyncio.current_task()
        said_goodbye = False
        try:
            self._handle(self._first_items)
            await self._read_frames()
            said_goodbye = not self._writer.open
        except grpc.aio.AioRpcError as error:
            return EndCause.STATUS, error_from_call(error)
        except asyncio.CancelledError:
            # A call that is cancelled here raises the same as a task that is cancelled; only the latter is
            # somebody's wish to stop this task.
            if self._given_up is None or (task is not None and task.cancelling()):
                raise
            return self._given_up, None
        return (EndCause.GOODBYE if said_goodbye else EndCause.CLOSED), None

    async def _read_frames(self) -> None:
        frame: Any
        while (frame := await self._call.read()) is not grpc.aio.EOF:
            self._last_received = self._clock.monotonic()
            # The library answers None for bytes that are no message of the plane.
            if frame is not None:
                self._handle(frame.items)
                self._writer.ack_seq = frame.seq

    def _handle(self, items: Sequence[Any]) -> None:
        for item in items:
            arm = item.WhichOneof("item")
            # An item of a newer server has no arm that is known here.
            if arm is not None:
                self._guarded(arm, partial(self._dispatch, arm, item))
        self._guarded("frame", partial(self._handler.frame_handled, self))

    def _guarded(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - one bad item must not end the stream
            # Without the text: it might quote what a peer has sent.
            logger.error("%s could not be handled: %s", what, type(error).__name__)

    def _dispatch(self, arm: str, item: Any) -> None:
        match arm:
            case "reply":
                self._calls.answer(item.reply)
            case "heartbeat":
                if item.heartbeat.ping_id:
                    pong = session_pb2.Heartbeat(pong_id=item.heartbeat.ping_id)
                    self.send(self._plane.item(heartbeat=pong), control=True)
            case "drain_notice":
                self.drain = item.drain_notice
                self.moving.set()
            case "frame_error":
                logger.warning("the server refused an item: %s", error_from_status(item.frame_error.status))
            case _:
                self._handler.received(self, arm, item)

    def _close(self, end: StreamEnd) -> None:
        self.end = end
        self._writer.stop()
        if self._timer is not None:
            self._timer.cancel()
        self._call.cancel()
        self._calls.expire(float("inf"))
        self.ended.set()
        self.moving.set()

    # -- time ---------------------------------------------------------------------------

    def _arm_timer(self, at_most: float = float("inf")) -> None:
        now = self._clock.monotonic()
        due = min(
            self._writer.last_sent + self.limits.heartbeat_seconds,
            self._last_received + self.limits.liveness_seconds,
            self._calls.next_deadline,
        )
        # Never a busy loop, whatever rounding does to the instants.
        wait = min(at_most, max(0.01, due - now))
        self._timer = self._clock.call_later(wait, lambda: self._tick(now + wait))

    def _tick(self, due: float) -> None:
        now = self._clock.monotonic()
        if now - due > _STALL_SECONDS:
            # What the server sent while this process stood still has not been read yet.
            self._arm_timer(at_most=_STALL_SECONDS)
            return
        if now >= self._last_received + self.limits.liveness_seconds:
            self.abandon(EndCause.SILENT)
            return
        self._calls.expire(now)
        if now >= self._writer.last_sent + self.limits.heartbeat_seconds:
            # Counted as sent at once: a write that does not get through must not pile up heartbeats.
            self._writer.last_sent = now
            self.send(self._plane.item(heartbeat=session_pb2.Heartbeat()), control=True)
        self._arm_timer()


class SessionHandler(StreamHandler, Protocol):
    """What a plane does with its session. Nothing here may block."""

    def hello(self) -> Hello | Awaitable[Hello]:
        """Return the hello of the next stream, at once or after a moment that the server waits as well."""

    def opened(self, stream: ClientStream) -> None:
        """Use this stream from now on. One that was used before still delivers until it is closed."""

    def lost(self, end: StreamEnd) -> None:
        """Know that there is no stream until `opened` is called again."""

    def refused(self, error: ServiceError) -> None:
        """Know that there will be no stream any more."""
