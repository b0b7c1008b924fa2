"""A client's session as tests drive it, and what a plane would do with it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import grpc
import grpc.aio

from sealwork.relay.v1 import site_plane_pb2
from service_common.channel_options import session_channel_options
from service_common.clocks import ManualClock
from service_common.errors import ServiceError
from service_common.session_client import (
    ClientStream,
    Hello,
    SessionClient,
    SessionPlane,
    StreamEnd,
)
from service_common.signing import Signer
from tests.service_common.scripted_server import (
    Plane,
    ScriptedServer,
    ScriptedStream,
    scripted_server,
)

SEED = bytes(range(32))
METHOD = "/sealwork.relay.v1.SitePlaneService/Session"
PLANE = Plane(
    "sealwork.relay.v1.SitePlaneService",
    site_plane_pb2.SitePlaneServiceSessionRequest,
    site_plane_pb2.SitePlaneServiceSessionResponse,
    site_plane_pb2.SiteServerItem,
    site_plane_pb2.SiteHello,
)
ServerItem = site_plane_pb2.SiteServerItem
Item = site_plane_pb2.SiteItem


@dataclass
class Recorder:
    """What a plane would do with its session."""

    credit: int = 10
    arms: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    frames: int = 0
    opened_streams: list[ClientStream] = field(default_factory=list)
    ends: list[StreamEnd] = field(default_factory=list)
    refusals: list[ServiceError] = field(default_factory=list)

    def hello(self) -> Hello:
        hello = site_plane_pb2.SiteHello(site_id="shop", process_id="p", protocol_version=1)
        hello.credit.limit = self.credit
        return Hello(hello.SerializeToString(), self.credit)

    def opened(self, stream: ClientStream) -> None:
        self.opened_streams.append(stream)

    def received(self, stream: ClientStream, arm: str, item: Any) -> None:
        self.arms.append(arm)
        if arm == "notice":
            if item.notice.notice_id == "bad":
                raise RuntimeError("a fault of the plane")
            self.notices.append(item.notice.notice_id)

    def frame_handled(self, stream: ClientStream) -> None:
        self.frames += 1

    def lost(self, end: StreamEnd) -> None:
        self.ends.append(end)

    def refused(self, error: ServiceError) -> None:
        self.refusals.append(error)


@dataclass
class Subject:
    client: SessionClient
    recorder: Recorder
    clock: ManualClock
    channels: list[grpc.aio.Channel]


@asynccontextmanager
async def connecting(
    server: ScriptedServer, *, at_once: bool = True, address: str = ""
) -> AsyncIterator[Subject]:
    clock = ManualClock()
    recorder = Recorder()
    channels: list[grpc.aio.Channel] = []

    def channel() -> grpc.aio.Channel:
        channels.append(
            grpc.aio.insecure_channel(address or server.address, options=session_channel_options())
        )
        return channels[-1]

    plane = SessionPlane(
        METHOD,
        site_plane_pb2.SiteItem,
        site_plane_pb2.SiteCall,
        site_plane_pb2.SitePlaneServiceSessionResponse.FromString,
        lambda error: error,
    )
    client = SessionClient(
        plane, recorder, channel, caller="shop", signer=Signer(SEED), clock=clock, random=Random(7)
    )
    client.start(at_once=at_once)
    closing = asyncio.Event()
    try:
        yield Subject(client, recorder, clock, channels)
    finally:
        closing.set()
        closed = asyncio.ensure_future(client.close("test over"))
        while not closed.done():
            # The goodbye of a stream that the test has left unanswered waits on the manual clock.
            clock.advance(5_000)
            await asyncio.wait((closed,), timeout=0.01)
        await closed


@asynccontextmanager
async def welcomed(
    **limits: Any,
) -> AsyncIterator[tuple[ScriptedServer, ScriptedStream, Subject, ClientStream]]:
    async with scripted_server(PLANE) as server, connecting(server) as subject:
        stream = await server.stream()
        await stream.welcome(**limits)
        yield server, stream, subject, await subject.client.opened()


def refusal(reason: str, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE, **more: Any) -> ServiceError:
    return ServiceError(code, reason, "no", **more)


def notice(notice_id: str) -> Any:
    return ServerItem(notice=site_plane_pb2.SiteNotice(notice_id=notice_id))


async def advance_until(
    clock: ManualClock, predicate: Any, *, step_ms: int = 100, most_ms: int = 120_000
) -> int:
    """Lets time pass in steps until something is true, and returns how much has."""
    passed = 0
    while not predicate():
        assert passed < most_ms, "it never came true"
        await clock.advance_async(step_ms)
        passed += step_ms
        await asyncio.sleep(0.002)
    return passed
