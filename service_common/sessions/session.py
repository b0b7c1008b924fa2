"""One stream on the server: reads frames, keeps both sides alive, ends with a reason.

How a stream ends is a value of our own. grpc.aio shows a cancelled client, a killed one,
a deadline, a stopped server and an oversized frame alike as the end of the requests, so
only a Goodbye counts as clean; everything else is a lost stream.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, Protocol, TypeVar

import grpc.aio
from google.rpc import status_pb2
from grpc_status import rpc_status

from sealwork.session.v1 import session_pb2
from service_common.call_failures import refusal_of
from service_common.clocks import Clock, TimerHandle
from service_common.errors import ServiceError
from service_common.sessions.endings import (
    STANDSTILL_SECONDS,
    EndReason,
    protocol_violation,
    server_draining,
    session_silent,
    slow_consumer,
)
from service_common.sessions.limits import SessionTimes
from service_common.sessions.outbound import Outbound

# Items handled between two turns of the event loop: a full frame of small calls takes longer than a
# cancel may wait.
_ITEMS_PER_TURN = 64

Item = TypeVar("Item")
ServerItem = TypeVar("ServerItem", bound=Any)


class Framing(Protocol[ServerItem]):
    """How a plane wraps what every stream says into its own messages."""

    domain: str

    def frame(self, seq: int, ack_seq: int, items: list[ServerItem]) -> object:
        """A frame of the plane."""

    def challenge(self, challenge: session_pb2.Challenge) -> ServerItem:
        """An item that holds a Challenge."""

    def welcome(self, welcome: session_pb2.Welcome) -> ServerItem:
        """An item that holds a Welcome."""

    def heartbeat(self, heartbeat: session_pb2.Heartbeat) -> ServerItem:
        """An item that holds a Heartbeat."""

    def frame_error(self, error: session_pb2.FrameError) -> ServerItem:
        """An item that holds a FrameError."""

    def resync_required(self, resync: session_pb2.ResyncRequired) -> ServerItem:
        """An item that holds a ResyncRequired."""

    def drain_notice(self, drain: session_pb2.DrainNotice) -> ServerItem:
        """An item that holds a DrainNotice."""


@dataclass(frozen=True, slots=True)
class SessionSetting:
    """What every stream is given: its bounds, and time and chance as arguments."""

    times: SessionTimes
    clock: Clock
    random: Random


class ServerSession(Generic[Item, ServerItem]):
    """The stream of one authenticated holder.

    Subclasses say what an item means in `receive` and tidy up in `closed`.
    """

    def __init__(
        self,
        context: grpc.aio.ServicerContext[Any, Any],
        framing: Framing[ServerItem],
        session_id: str,
        setting: SessionSetting,
    ) -> None:
        times, clock = setting.times, setting.clock
        self.session_id = session_id
        self.epoch = 0
        self.times = times
        self.clock = clock
        self.unknown_items = 0
        self.draining = False
        self._context = context
        self._framing = framing
        self._random = setting.random
        self._seq = 0
        self._peer_seq = 0
        self._end: EndReason | None = None
        self._end_status: status_pb2.Status | None = None
        self._errors: deque[float] = deque()
        self._timers: dict[str, TimerHandle] = {}
        self._handler: asyncio.Task[Any] | None = None
        self._last_received = clock.monotonic()
        self._beat_due = 0.0
        self._served = asyncio.Event()
        self.outbound: Outbound[ServerItem] = Outbound(
            self._write_items,
            self._stalled,
            clock=clock,
            frame_bytes=times.frame_bytes,
            controls=times.queued_controls,
            notices=times.queued_notices,
            stall_ms=times.write_stall_ms,
            on_room=self.notices_wanted,
        )

    # -- what subclasses say ------------------------------------------------------------

    async def receive(self, item: Item) -> None:
        """Handles one item; a ServiceError becomes a FrameError and the stream lives on."""
        raise NotImplementedError

    def arm_of(self, item: Item) -> str | None:
        """Name of the arm that is set, None for an item of a newer peer."""
        raise NotImplementedError

    async def settle(self) -> None:
        """Returns when nothing that was received is still being carried out; for subclasses that do so."""

    def notices_wanted(self) -> None:
        """The lane of notices, once found full, is empty again; subclasses fetch what did not fit."""

    # -- sending ------------------------------------------------------------------------

    def send_control(self, item: ServerItem) -> None:
        """Queues an item ahead of notices; a client that lets this lane fill is ended."""
        if not self.outbound.control(item):
            self._stalled()

    def send_notice(self, item: ServerItem) -> bool:
        """Queues a notice; when the lane is full it is dropped and a resync asked for."""
        if self.outbound.notice(item):
            return True
        if "resync" not in self._timers:
            resync = session_pb2.ResyncRequired(reason=session_pb2.RESYNC_REASON_NOTICES_DROPPED)
            self.send_control(self._framing.resync_required(resync))
            # One request to resync per interval says as much as a thousand.
            self._start_timer("resync", self.times.heartbeat_ms / 1000, self._forget_resync)
        return False

    # -- ending -------------------------------------------------------------------------

    @property
    def end_reason(self) -> EndReason:
        """How the stream ended; LOST until something else is known."""
        return self._end or EndReason.LOST

    @property
    def ended(self) -> bool:
        """The stream has been told to end; nothing more is sent or received."""
        return self._end is not None

    def end(self, reason: EndReason, error: ServiceError | None = None) -> None:
        """Ends the stream from our side, with a status unless it is a clean end."""
        if self._end is not None:
            return
        self._end = reason
        if error is not None:
            self._end_status = error.to_status(self._framing.domain)
        # The handler waits in a read that only the peer could end.
        self._interrupt()

    def _interrupt(self) -> None:
        if self._handler is not None and self._handler is not asyncio.current_task():
            self._handler.cancel()

    def ask_to_move(self, reason: session_pb2.DrainReason.ValueType, deadline_ms: int | None = None) -> None:
        """Sends a DrainNotice and ends the stream when its time is up."""
        if self.draining or self.ended:
            return
        self.draining = True
        deadline = self.times.drain_ms if deadline_ms is None else deadline_ms
        notice = session_pb2.DrainNotice(reason=reason)
        wait = self._random.uniform(0, min(self.times.reconnect_spread_ms, deadline / 2))
        notice.reconnect_after.FromMilliseconds(int(wait))
        notice.deadline.FromMilliseconds(deadline)
        self.send_control(self._framing.drain_notice(notice))
        self._start_timer("drain", deadline / 1000, self._drained)

    async def wait_ended(self) -> None:
        """Returns when the stream is no longer served."""
        await self._served.wait()

    # -- serving ------------------------------------------------------------------------

    def follow_greeting(self, peer_seq: int) -> None:
        """Counts on from the challenge and the hello, the first frame of either side."""
        self._seq = 1
        self._peer_seq = peer_seq

    async def serve(self, opening: Coroutine[Any, Any, None]) -> None:
        """Answers the hello and reads until the end; `end_reason` says how it came.

        The status is not sent yet: a peer that does not read would keep everything waiting
        that has to be tidied up behind it. See `finish`.

        Args:
            opening: what answers the hello.

        Raises:
            CancelledError: when the call was cancelled from outside.
        """
        handler = self._handler = asyncio.current_task()
        self._last_received = self.clock.monotonic()
        self._beat_in(self.times.heartbeat_ms / 1000)
        age = self.times.stream_age_ms / 1000 * self._random.uniform(0.8, 1.2)
        self._start_timer("age", age, self._aged)
        try:
            await opening
            await self._read_frames()
        except asyncio.CancelledError:
            if self._end is None or handler is None:
                self._end = EndReason.LOST
                raise
            # Our own interruption of the read: the handler goes on to send the status.
            handler.uncancel()
        finally:
            self._stop_timers()

    async def finish(self) -> None:
        """Sends what was answered before the end, and the status.

        Raises:
            AbortError: by gRPC, when the stream ends with a status of ours.
            CancelledError: when the peer does not take the status either, which resets the stream.
        """
        flushed = self.end_reason in (EndReason.GOODBYE, EndReason.DRAINED, EndReason.REFUSED)
        if flushed and not await self._flush() and self._end_status is None:
            # Not OK: it would wait behind what is not read, where nothing of ours bounds the wait.
            self._end_status = slow_consumer().to_status(self._framing.domain)
        self.outbound.close()
        if self._end_status is not None:
            limit = self.clock.call_later(self.times.write_stall_ms / 1000, self._interrupt)
            try:
                await self._context.abort_with_status(rpc_status.to_status(self._end_status))
            finally:
                limit.cancel()

    def closed(self) -> None:
        """Nothing is sent or served any more, however it ended."""
        self._end = self._end or EndReason.LOST
        self._stop_timers()
        self.outbound.close()
        self._served.set()

    async def _read_frames(self) -> None:
        while self._end is None:
            try:
                frame = await self._context.read()
            except ServiceError as error:
                # Bytes that are no frame of this plane; the ones after them may be.
                self._last_received = self.clock.monotonic()
                self._peer_seq += 1
                self._report(self._peer_seq, 0, error)
                continue
            if frame is grpc.aio.EOF:
                await self.settle()
                self._end = EndReason.LOST
                return
            self._last_received = self.clock.monotonic()
            self._check_frame(frame)
            await self._receive_items(frame.seq, frame.items)

    def _check_frame(self, frame: Any) -> None:
        self._peer_seq = frame.seq
        if frame.ByteSize() > self.times.frame_bytes:
            self.end(EndReason.REFUSED, protocol_violation("the frame is over the limit in bytes"))

    async def receive_rest(self, seq: int, items: Sequence[Item]) -> None:
        """Handles items that came in the frame of the hello, behind it."""
        await self._receive_items(seq, items, first=1)

    async def _receive_items(self, seq: int, items: Sequence[Item], first: int = 0) -> None:
        for index, item in enumerate(items, first):
            if self.outbound.crowded:
                await self.outbound.control_room()
            if index % _ITEMS_PER_TURN == _ITEMS_PER_TURN - 1:
                await asyncio.sleep(0)
            if self._end is not None:
                return
            if self.arm_of(item) is None:
                self.unknown_items += 1
                continue
            try:
                await self.receive(item)
            except ServiceError as error:
                if error.code is grpc.StatusCode.UNAVAILABLE:
                    self._send_frame_error(seq, index, error)
                else:
                    self._report(seq, index, error)
            except Exception as error:  # noqa: BLE001 - one place for all items
                # A fault of ours, like a store that is away, is not counted against the peer, and a
                # thousand streams that ended at once would come back at once.
                self._send_frame_error(seq, index, refusal_of(error, f"a stream of {self._framing.domain}"))

    def _report(self, seq: int, index: int, error: ServiceError) -> None:
        now = self.clock.monotonic()
        self._errors.append(now)
        while self._errors[0] < now - self.times.frame_error_window_ms / 1000:
            self._errors.popleft()
        if len(self._errors) >= self.times.frame_errors:
            self.end(EndReason.REFUSED, protocol_violation("too many bad items within a minute"))
            return
        self._send_frame_error(seq, index, error)

    def _send_frame_error(self, seq: int, index: int, error: ServiceError) -> None:
        status = error.to_status(self._framing.domain)
        self.send_control(
            self._framing.frame_error(session_pb2.FrameError(frame_seq=seq, item_index=index, status=status))
        )

    async def _flush(self) -> bool:
        """Lets what was answered before the end travel; False when it took longer than the stall bound."""
        flushing = asyncio.ensure_future(self.outbound.flush())
        limit = self.clock.call_later(self.times.write_stall_ms / 1000, flushing.cancel)
        try:
            await asyncio.wait([flushing])
        finally:
            limit.cancel()
        return not flushing.cancelled()

    async def _write_items(self, items: list[ServerItem]) -> None:
        self._seq += 1
        await self._context.write(self._framing.frame(self._seq, self._peer_seq, items))

    # -- timers -------------------------------------------------------------------------

    def _start_timer(self, name: str, seconds: float, callback: Callable[[], object]) -> None:
        self._timers[name] = self.clock.call_later(seconds, callback)

    def _stop_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _beat(self) -> None:
        """Says something when we were silent; ends the stream when the peer was."""
        now = self.clock.monotonic()
        silent_at = self._last_received + self.times.liveness_ms / 1000
        if now >= silent_at:
            if now - self._beat_due <= STANDSTILL_SECONDS:
                self.end(EndReason.SILENT, session_silent())
                return
            # It was this process that stood still: what the peer said meanwhile has not been read yet.
            silent_at = now + STANDSTILL_SECONDS
        beat_at = self.outbound.last_sent + self.times.heartbeat_ms / 1000
        if now >= beat_at:
            self.send_control(self._framing.heartbeat(session_pb2.Heartbeat()))
            beat_at = now + self.times.heartbeat_ms / 1000
        # Never a busy loop, whatever rounding does to the two instants.
        self._beat_in(max(0.01, min(beat_at, silent_at) - now))

    def _beat_in(self, seconds: float) -> None:
        self._beat_due = self.clock.monotonic() + seconds
        self._start_timer("beat", seconds, self._beat)

    def _aged(self) -> None:
        self.ask_to_move(session_pb2.DRAIN_REASON_STREAM_AGE)

    def _drained(self) -> None:
        self.end(EndReason.DRAINED, server_draining())

    def _stalled(self) -> None:
        self.end(EndReason.SLOW, slow_consumer())

    def _forget_resync(self) -> None:
        self._timers.pop("resync", None)
