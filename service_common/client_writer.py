"""The one writer of a client's stream."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.message import Message

from sealwork.session.v1 import session_pb2
from service_common.client_frames import OutboundFrames

_WRITE_ERRORS: Final = (
    grpc.aio.AioRpcError,
    grpc.aio.InternalError,
    grpc.aio.UsageError,
    asyncio.InvalidStateError,
)


class StreamWriter:
    """Writes whatever has been queued, in frames as large as may be, by a task that exists only meanwhile.

    The library refuses a second write while one is under way and loses its frame, so there is one writer.

    Attributes:
        ack_seq: Highest seq of the server that has been handled; told with every frame.
        last_sent: When a frame was last handed over, by the monotonic clock.
    """

    def __init__(
        self,
        call: "grpc.aio.StreamStreamCall[Any, Any]",
        item: Callable[..., Message],
        outbound: OutboundFrames,
        monotonic: Callable[[], float],
        credit: int,
    ) -> None:
        """Write to `call`; `credit` is what the hello has stated."""
        self.ack_seq = 0
        self.last_sent = monotonic()
        self._call = call
        self._item = item
        self._outbound = outbound
        self._monotonic = monotonic
        self._credit = self._credit_sent = credit
        self._task: asyncio.Task[None] | None = None
        self._last = False
        self._stopped = False

    @property
    def open(self) -> bool:
        """Whether anything more can be queued."""
        return not self._last and not self._stopped

    def queue(self, item: bytes, *, control: bool) -> None:
        """Queue a serialized item; dropped when the stream is over.

        Raises:
            ValueError: It does not fit into a frame.
        """
        if self.open:
            self._outbound.add(item, control=control)
            self._wake()

    def offer_credit(self, limit: int) -> None:
        """Raise the credit; several raises before the next frame become one item."""
        if limit > self._credit and self.open:
            self._credit = limit
            self._wake()

    def finish(self, item: bytes) -> None:
        """Queue the last item; the stream is closed behind it."""
        self.queue(item, control=False)
        self._last = True

    def stop(self) -> None:
        """Forget what waits and write nothing more."""
        self._stopped = True
        self._outbound.clear()

    def _wake(self) -> None:
        if self._task is None:
            # The task starts in the next pass of the event loop: what is queued in this one shares a frame.
            self._task = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        task = asyncio.current_task()
        try:
            await self._write_frames()
        except _WRITE_ERRORS:
            # The stream is over; its reader learns why.
            self.stop()
        except asyncio.CancelledError:
            # A call that is cancelled here raises the same as a task that is cancelled.
            if not self._stopped or (task is not None and task.cancelling()):
                raise
        finally:
            self._task = None

    async def _write_frames(self) -> None:
        while not self._stopped:
            self._add_credit()
            frame = self._outbound.take(self.ack_seq)
            if not frame:
                break
            self.last_sent = self._monotonic()
            await self._call.write(frame)
        if self._last and not self._stopped:
            await self._call.done_writing()

    def _add_credit(self) -> None:
        if self._credit > self._credit_sent and not self._last:
            self._credit_sent = self._credit
            item = self._item(credit=session_pb2.Credit(limit=self._credit))
            self._outbound.add(item.SerializeToString(), control=True)
