"""A stream without a socket: what a session reads, writes and ends with, in a test's hands."""

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any

import grpc
import grpc.aio
from google.rpc import error_details_pb2, status_pb2

from sealwork.session.v1 import session_pb2
from service_common.clocks import ManualClock
from service_common.sessions.limits import SessionTimes
from service_common.sessions.session import ServerSession, SessionSetting


@dataclass(frozen=True)
class Item:
    """Something said, by either side."""

    arm: str | None
    size: int = 10
    content: Any = None

    def ByteSize(self) -> int:
        return self.size


@dataclass(frozen=True)
class Frame:
    seq: int
    items: tuple[Item, ...]
    ack_seq: int = 0

    def ByteSize(self) -> int:
        return sum(item.size for item in self.items)


class FakeFraming:
    domain = "test.sealwork.dev"

    def frame(self, seq: int, ack_seq: int, items: list[Item]) -> Frame:
        return Frame(seq, tuple(items), ack_seq)

    def challenge(self, challenge: session_pb2.Challenge) -> Item:
        return Item("challenge", content=challenge)

    def welcome(self, welcome: session_pb2.Welcome) -> Item:
        return Item("welcome", content=welcome)

    def heartbeat(self, heartbeat: session_pb2.Heartbeat) -> Item:
        return Item("heartbeat", content=heartbeat)

    def frame_error(self, error: session_pb2.FrameError) -> Item:
        return Item("frame_error", content=error)

    def resync_required(self, resync: session_pb2.ResyncRequired) -> Item:
        return Item("resync", content=resync)

    def drain_notice(self, drain: session_pb2.DrainNotice) -> Item:
        return Item("drain", content=drain)


class AbortedError(Exception):
    """What gRPC raises when a status was sent."""


class FakeContext:
    """A call.

    Attributes:
        reading: what the peer has sent and is not read yet; an exception in it is raised.
        written: every frame that was written.
        taking: the peer takes what is written; cleared, writes and the status wait for ever.
    """

    def __init__(self) -> None:
        self.reading: asyncio.Queue[Any] = asyncio.Queue()
        self.written: list[Frame] = []
        self.statuses: list[status_pb2.Status] = []
        self.taking = asyncio.Event()
        self.taking.set()
        self.writing = 0
        self.broken = False

    async def read(self) -> Any:
        value = await self.reading.get()
        if isinstance(value, Exception):
            raise value
        return value

    async def write(self, frame: Frame) -> None:
        assert not self.writing, "two writes at once"
        self.writing += 1
        try:
            await self.taking.wait()
            if self.broken:
                raise grpc.aio.InternalError("the peer is gone")
            self.written.append(frame)
        finally:
            self.writing -= 1

    async def abort_with_status(self, status: Any) -> None:
        (raw,) = [value for key, value in status.trailing_metadata if key == "grpc-status-details-bin"]
        await self.taking.wait()
        self.statuses.append(status_pb2.Status.FromString(raw))
        raise AbortedError

    @property
    def arms(self) -> list[str | None]:
        return [item.arm for frame in self.written for item in frame.items]

    @property
    def reason(self) -> str:
        (status,) = self.statuses
        info = error_details_pb2.ErrorInfo()
        assert status.details[0].Unpack(info)
        return str(info.reason)


class FakeSession(ServerSession[Item, Item]):
    """A session that notes what it received; an item may bring an exception to raise."""

    def __init__(self, context: FakeContext, clock: ManualClock, **times: int) -> None:
        setting = SessionSetting(times=SessionTimes(**times), clock=clock, random=Random(3))
        super().__init__(context, FakeFraming(), "session-1", setting)  # type: ignore[arg-type]
        self.received: list[Item] = []
        self.wanted = 0

    def arm_of(self, item: Item) -> str | None:
        return item.arm

    async def receive(self, item: Item) -> None:
        self.received.append(item)
        if isinstance(item.content, Exception):
            raise item.content
        if callable(item.content):
            item.content(self)

    def notices_wanted(self) -> None:
        self.wanted += 1


async def settle() -> None:
    """Lets every task run until it waits."""
    for _ in range(100):
        await asyncio.sleep(0)
