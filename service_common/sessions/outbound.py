"""Two bounded lanes towards one peer, written by one task that exists only while needed.

grpc.aio refuses a second write while one is under way and loses its frame, so there is
one writer. Control items (verdicts, replies, heartbeats, drain) overtake notices; within
a lane order is kept. Whatever has queued since the last write travels in one frame.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from service_common.clocks import Clock, TimerHandle
from service_common.sessions.endings import STANDSTILL_SECONDS


class Sized(Protocol):
    """A protobuf message, as far as packing is concerned."""

    def ByteSize(self) -> int:
        """Bytes of the serialized message."""


Item = TypeVar("Item", bound=Sized)

# Tag and length of one item within its frame, at the most.
_ITEM_OVERHEAD_BYTES = 6


class Outbound(Generic[Item]):
    """What waits to be written to one stream.

    Args:
        write: writes one frame; awaited by one task at a time.
        on_stalled: called once when a write does not end within `stall_ms`.
        on_room: called when the lane of notices, once found full, is empty again.
    """

    def __init__(
        self,
        write: Callable[[list[Item]], Awaitable[None]],
        on_stalled: Callable[[], None],
        *,
        clock: Clock,
        frame_bytes: int,
        controls: int,
        notices: int,
        stall_ms: int,
        on_room: Callable[[], object] = lambda: None,
    ) -> None:
        self._write = write
        self._on_stalled = on_stalled
        self._clock = clock
        self._frame_bytes = frame_bytes
        self._control_bound = controls
        self._notice_bound = notices
        self._stall_seconds = stall_ms / 1000
        self._stall: TimerHandle | None = None
        self._stall_due = 0.0
        self._on_room = on_room
        self._found_full = False
        self._eased: asyncio.Future[None] | None = None
        # Lists: an empty deque takes more than half a KiB, and nearly all lanes of a server are empty.
        self._controls: list[Item] = []
        self._notices: list[Item] = []
        self._writer: asyncio.Task[None] | None = None
        self._open = True
        self.last_sent = clock.monotonic()

    def control(self, item: Item) -> bool:
        """Queues an item that overtakes notices; False when the lane is full."""
        if len(self._controls) >= self._control_bound:
            return False
        self._controls.append(item)
        self._wake()
        return True

    def notice(self, item: Item) -> bool:
        """Queues an item behind all others; False when the lane is full."""
        if not self.notice_room:
            return False
        self._notices.append(item)
        self._wake()
        return True

    @property
    def notice_room(self) -> int:
        """How many notices fit now. Whoever finds none is told by `on_room` when there is some."""
        room = self._notice_bound - len(self._notices)
        self._found_full = self._found_full or room <= 0
        return room

    @property
    def crowded(self) -> bool:
        """The control lane is at least half full, and what is in it will be written."""
        return self._open and 2 * len(self._controls) >= self._control_bound

    async def control_room(self) -> None:
        """Returns when the control lane is less than half full, or nothing is written any more.

        Whoever answers many requests at once waits here between them, so that only a peer that
        does not read its answers can fill the lane.
        """
        while self.crowded:
            if self._eased is None:
                self._eased = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._eased)

    @property
    def waiting(self) -> int:
        """Items not yet handed to the transport."""
        return len(self._controls) + len(self._notices)

    async def flush(self) -> None:
        """Returns when everything queued has been handed to the transport, or the stream is gone."""
        writer = self._writer
        if writer is not None:
            await asyncio.wait([writer])

    def close(self) -> None:
        """Drops what waits; nothing is written from now on."""
        self._open = False
        self._controls.clear()
        self._notices.clear()
        self._ease()
        if self._writer is not None:
            self._writer.cancel()

    def _wake(self) -> None:
        if self._writer is None and self._open:
            self._writer = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        try:
            while self._open and (self._controls or self._notices):
                batch = self._take()
                self._tell_room()
                # Counted from here: how long the transport takes is no reason to say the next thing later.
                self.last_sent = now = self._clock.monotonic()
                self._watch(now, self._stall_seconds)
                try:
                    await self._write(batch)
                except Exception:  # noqa: BLE001 - the peer is gone; the reader of the stream tells why
                    self._open = False
                finally:
                    if self._stall is not None:
                        self._stall.cancel()
        finally:
            self._writer = None
            self._ease()

    def _watch(self, now: float, seconds: float) -> None:
        self._stall_due = now + seconds
        self._stall = self._clock.call_later(seconds, self._overdue)

    def _overdue(self) -> None:
        now = self._clock.monotonic()
        if now - self._stall_due > STANDSTILL_SECONDS:
            # It was this process that stood still: the write may long be through, and nobody has looked.
            self._watch(now, STANDSTILL_SECONDS)
        else:
            self._on_stalled()

    def _tell_room(self) -> None:
        self._ease()
        if self._found_full and not self._notices:
            self._found_full = False
            self._on_room()

    def _ease(self) -> None:
        eased, self._eased = self._eased, None
        if eased is not None and not eased.done():
            eased.set_result(None)

    def _take(self) -> list[Item]:
        """At least one item, then as many as fit into one frame."""
        if self.waiting == 1:
            # Most frames are like this, and a single item goes whatever its size.
            return [(self._controls or self._notices).pop()]
        batch: list[Item] = []
        room = self._frame_bytes - 32
        for lane in (self._controls, self._notices):
            before = len(batch)
            for item in lane:
                room -= item.ByteSize() + _ITEM_OVERHEAD_BYTES
                if room < 0 and batch:
                    break
                batch.append(item)
            del lane[: len(batch) - before]
            if lane:
                # Nothing of a later lane may overtake what did not fit.
                break
        return batch
