"""A client's session over a real connection to a server that the test plays."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import grpc
import grpc.aio
import pytest
from nacl.signing import SigningKey

from sealwork.relay.v1 import site_plane_pb2
from sealwork.session.v1 import session_pb2
from service_common.channel_options import session_channel_options
from service_common.clocks import ManualClock
from service_common.errors import ServiceError
from service_common.session_client import (
    BodyTooLarge,
    ClientStream,
    EndCause,
    Hello,
    SessionClient,
    SessionLost,
    SessionPlane,
    StreamEnd,
)
from service_common.signing import Signer
from tests.harness.waiting import eventually
from tests.service_common.scripted_server import (
    Plane,
    ScriptedServer,
    ScriptedStream,
    duration,
    make_welcome,
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


# -- opening ----------------------------------------------------------------------------


async def test_the_hello_is_signed_over_the_challenge() -> None:
    async with scripted_server(PLANE) as server, connecting(server):
        stream = await server.stream()
        await stream.challenge()
        signed = await stream.next_item("hello")

        # The nonce 00 01 .. 0f as unpadded base64url is AAECAwQFBgcICQoLDA0ODw.
        lines = (
            "sealwork/v1/session",
            "/sealwork.relay.v1.SitePlaneService/Session",
            "shop",
            "AAECAwQFBgcICQoLDA0ODw",
            hashlib.sha256(signed.hello).hexdigest(),
        )
        SigningKey(SEED).verify_key.verify("\n".join(lines).encode(), signed.signature)
        assert stream.frames[0].seq == 1
        assert [item.WhichOneof("item") for item in stream.frames[0].items] == ["hello"]
        assert site_plane_pb2.SiteHello.FromString(signed.hello).credit.limit == 10


async def test_what_came_in_the_frame_of_the_welcome_is_handled_after_opened() -> None:
    async with scripted_server(PLANE) as server, connecting(server) as subject:
        stream = await server.stream()
        await stream.welcome(notice("first"))
        await subject.client.opened()

        await eventually(lambda: subject.recorder.notices == ["first"])
        assert len(subject.recorder.opened_streams) == 1


async def test_a_server_that_sends_no_challenge_is_given_up_after_ten_seconds() -> None:
    async with scripted_server(PLANE) as server, connecting(server) as subject:
        await server.stream()
        await subject.clock.advance_async(9_900)
        early = subject.client.failure
        await subject.clock.advance_async(100)

        failure = await eventually(lambda: subject.client.failure)
        assert early is None
        assert failure.code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "challenge" in failure.message


async def test_a_server_that_sends_no_welcome_is_given_up_and_asked_again() -> None:
    async with scripted_server(PLANE) as server, connecting(server) as subject:
        stream = await server.stream()
        await stream.challenge()
        await stream.next_item("hello")
        await subject.clock.advance_async(10_000)

        await advance_until(subject.clock, lambda: len(server.streams) == 2)
        await server.streams[1].welcome()
        await subject.client.opened()


async def test_the_first_try_is_jittered_unless_it_is_asked_for_at_once() -> None:
    async with scripted_server(PLANE) as server, connecting(server, at_once=False) as subject:
        await asyncio.sleep(0.05)
        assert server.streams == []

        passed = await advance_until(subject.clock, lambda: server.streams)
        assert 0 < passed <= 2_000


# -- sending ----------------------------------------------------------------------------


async def test_items_of_one_moment_share_a_frame_with_control_before_the_rest() -> None:
    async with welcomed() as (_, stream, _, client):
        client.send(Item(call=site_plane_pb2.SiteCall(id=1)))
        client.send(Item(call=site_plane_pb2.SiteCall(id=2)))
        client.send(Item(heartbeat=session_pb2.Heartbeat(ping_id=9)), control=True)

        await stream.next_item("call", after=1)
        frame = stream.frames[1]
        assert frame.seq == 2
        assert [item.WhichOneof("item") for item in frame.items] == ["heartbeat", "call", "call"]
        assert [item.call.id for item in frame.items[1:]] == [1, 2]


async def test_frames_are_at_most_64_kib() -> None:
    async with welcomed() as (_, stream, _, client):
        for number in range(20):
            call = site_plane_pb2.SiteCall(id=number + 1)
            call.seal_payload.envelope.ciphertext = b"x" * 10_000
            client.send(Item(call=call))

        await stream.next_item("call", after=19)
        assert [call.id for call in stream.items("call")] == list(range(1, 21))
        # Six of them make 60 KB, a seventh would not fit.
        assert [len(frame.items) for frame in stream.frames[1:]] == [6, 6, 6, 2]
        assert max(stream.sizes) <= 65_536


async def test_an_item_that_fits_into_no_frame_is_refused() -> None:
    async with welcomed() as (_, _, _, client):
        call = site_plane_pb2.SiteCall(id=1)
        call.seal_payload.envelope.ciphertext = b"x" * 65_536
        with pytest.raises(ValueError, match="does not fit"):
            client.send(Item(call=call))


async def test_ack_seq_tells_what_has_been_handled() -> None:
    async with welcomed() as (_, stream, subject, client):
        await stream.send(notice("a"), seq=41)
        await eventually(lambda: subject.recorder.notices == ["a"])
        client.send(Item(heartbeat=session_pb2.Heartbeat()))

        await stream.next_item("heartbeat")
        assert stream.frames[-1].ack_seq == 41


async def test_credit_is_sent_once_for_several_raises_and_never_goes_down() -> None:
    async with welcomed() as (_, stream, _, client):
        client.offer_credit(11)
        client.offer_credit(30)
        client.offer_credit(12)
        await stream.next_item("credit")
        client.offer_credit(30)
        client.offer_credit(31)
        await stream.next_item("credit", after=1)

        assert [credit.limit for credit in stream.items("credit")] == [30, 31]


# -- calls ------------------------------------------------------------------------------


async def test_replies_find_their_calls_in_any_order() -> None:
    async with welcomed() as (_, stream, _, client):
        first = client.request("cancel_job", site_plane_pb2.CancelJobRequest(job_id="a"))
        second = client.request("cancel_job", site_plane_pb2.CancelJobRequest(job_id="b"))
        await stream.next_item("call", after=1)
        assert [(call.id, call.cancel_job.job_id) for call in stream.items("call")] == [(1, "a"), (2, "b")]

        reply = site_plane_pb2.SiteReply
        yes = site_plane_pb2.CancelJobResponse(cancelled=True)
        error = refusal("JOB_NOT_FOUND", grpc.StatusCode.NOT_FOUND).to_status("d")
        await stream.send(
            ServerItem(reply=reply(id=2, cancel_job=yes)),
            ServerItem(reply=reply(id=77, cancel_job=yes)),
            ServerItem(reply=reply(id=1, error=error)),
        )

        assert (await second).cancelled is True
        with pytest.raises(ServiceError) as caught:
            await first
        assert caught.value.reason == "JOB_NOT_FOUND"


async def test_a_call_whose_stream_ends_is_lost() -> None:
    async with welcomed() as (_, stream, _, client):
        answer = client.request("get_job", site_plane_pb2.GetJobRequest(job_id="a"))
        await stream.next_item("call")
        stream.end(refusal("SERVER_DRAINING"))

        with pytest.raises(SessionLost):
            await answer
        with pytest.raises(SessionLost):
            client.request("get_job", site_plane_pb2.GetJobRequest(job_id="a"))


async def test_a_call_that_is_not_answered_is_given_up_and_the_stream_lives() -> None:
    async with welcomed() as (_, stream, subject, client):
        answer = client.request("get_job", site_plane_pb2.GetJobRequest(job_id="a"))
        await stream.next_item("call")
        await subject.clock.advance_async(9_000)
        assert not answer.done()
        await subject.clock.advance_async(6_000)

        with pytest.raises(SessionLost):
            await answer
        assert client.end is None


async def test_an_answer_of_a_newer_server_is_asked_for_by_unary_call() -> None:
    async with welcomed() as (_, stream, _, client):
        answer = client.request("get_job", site_plane_pb2.GetJobRequest(job_id="a"))
        await stream.next_item("call")
        # An outcome of field 99 that this client does not know.
        await stream.send(ServerItem(reply=site_plane_pb2.SiteReply.FromString(b"\x08\x01\x9a\x06\x00")))

        with pytest.raises(SessionLost):
            await answer


async def test_a_body_over_the_limit_does_not_ride_the_session() -> None:
    async with welcomed(inline=1_000) as (_, _, _, client):
        request = site_plane_pb2.SealPayloadRequest(job_id="a")
        request.envelope.ciphertext = b"x" * 1_000
        with pytest.raises(BodyTooLarge):
            client.request("seal_payload", request)


async def test_a_cancelled_call_forgets_its_answer() -> None:
    async with welcomed() as (_, stream, subject, client):
        answer = client.request("get_job", site_plane_pb2.GetJobRequest(job_id="a"))
        await stream.next_item("call")
        answer.cancel()
        await stream.send(ServerItem(reply=site_plane_pb2.SiteReply(id=1)), notice("after"))

        await eventually(lambda: subject.recorder.notices == ["after"])


# -- receiving --------------------------------------------------------------------------


async def test_unknown_arms_bad_items_and_odd_frames_do_not_end_the_stream() -> None:
    async with welcomed() as (_, stream, subject, client):
        unknown = ServerItem.FromString(b"\x9a\x06\x00")
        error = refusal("FIELD_INVALID", grpc.StatusCode.INVALID_ARGUMENT).to_status("d")
        await stream.send(unknown, notice("bad"), notice("good"))
        await stream.send(ServerItem(frame_error=session_pb2.FrameError(frame_seq=1, status=error)))
        await stream.send_raw(b"\xff\xff\xff")
        await stream.send()
        await stream.send(notice("last"))

        await eventually(lambda: subject.recorder.notices == ["good", "last"])
        assert subject.recorder.arms == ["notice", "notice", "notice"]
        assert client.end is None


async def test_a_ping_is_answered() -> None:
    async with welcomed() as (_, stream, _, _):
        await stream.send(ServerItem(heartbeat=session_pb2.Heartbeat(ping_id=5)))

        assert (await stream.next_item("heartbeat")).pong_id == 5


# -- liveness ---------------------------------------------------------------------------


async def test_a_heartbeat_is_sent_in_silence_and_only_then() -> None:
    async with welcomed(heartbeat=15, liveness=1_000) as (_, stream, subject, client):
        await subject.clock.advance_async(14_000)
        client.send(Item(credit=session_pb2.Credit(limit=1)))
        await stream.next_item("credit")
        await subject.clock.advance_async(14_000)
        await asyncio.sleep(0.05)
        assert stream.items("heartbeat") == []

        await subject.clock.advance_async(1_000)
        await stream.next_item("heartbeat")
        await subject.clock.advance_async(15_000)
        await stream.next_item("heartbeat", after=1)
        assert len(stream.items("heartbeat")) == 2


async def test_a_silent_server_is_abandoned_and_another_stream_opened() -> None:
    async with welcomed() as (server, _, subject, client):
        await subject.clock.advance_async(44_900)
        early = client.end
        await subject.clock.advance_async(100)

        end = await eventually(lambda: client.end)
        assert early is None
        assert end.cause is EndCause.SILENT
        assert end.lived_seconds == pytest.approx(45, abs=0.01)
        await advance_until(subject.clock, lambda: len(server.streams) == 2)
        await server.streams[1].welcome()
        await subject.client.opened()
        assert [end.cause for end in subject.recorder.ends] == [EndCause.SILENT]


async def test_any_frame_is_a_sign_of_life() -> None:
    async with welcomed() as (_, stream, subject, client):
        await subject.clock.advance_async(44_000)
        await stream.send()
        await eventually(lambda: subject.recorder.frames == 2)
        await subject.clock.advance_async(44_000)

        assert client.end is None


async def test_a_process_that_stood_still_reads_before_it_judges() -> None:
    async with welcomed() as (_, stream, subject, client):
        # As after the event loop was blocked, or the machine asleep: all timers come late, at once.
        subject.clock.stall(60_000)
        subject.clock.advance(0)
        await stream.send()
        await eventually(lambda: subject.recorder.frames == 2)
        await subject.clock.advance_async(1_000)

        assert client.end is None


# -- ending and coming back -------------------------------------------------------------


async def test_close_says_goodbye_behind_what_was_queued_and_half_closes() -> None:
    async with scripted_server(PLANE) as server, connecting(server) as subject:
        stream = await server.stream()
        await stream.welcome()
        client = await subject.client.opened()
        client.send(Item(heartbeat=session_pb2.Heartbeat(ping_id=3)))
        closing = asyncio.ensure_future(subject.client.close("enough"))
        goodbye = await stream.next_item("goodbye")
        await stream.at_end.wait()
        stream.end()
        await closing

        assert goodbye.reason == "enough"
        said = [item.WhichOneof("item") for frame in stream.frames[1:] for item in frame.items]
        assert said == ["heartbeat", "goodbye"]
        assert client.end is not None
        assert client.end.cause is EndCause.GOODBYE
        assert subject.client.stream is None


async def test_a_goodbye_that_is_not_answered_ends_after_five_seconds() -> None:
    async with welcomed() as (_, stream, subject, client):
        leaving = asyncio.ensure_future(client.goodbye("bye"))
        await stream.next_item("goodbye")
        await subject.clock.advance_async(4_900)
        assert not leaving.done()
        await subject.clock.advance_async(100)
        await leaving

        assert client.end is not None
        assert client.end.cause is EndCause.GOODBYE


async def test_a_lost_stream_is_followed_by_another() -> None:
    async with welcomed() as (server, stream, subject, client):
        stream.end_bare(grpc.StatusCode.UNAVAILABLE, "a proxy said so")
        await eventually(lambda: subject.recorder.ends != [])
        assert subject.client.stream is None

        passed = await advance_until(subject.clock, lambda: len(server.streams) == 2)
        await server.streams[1].welcome()
        opened = await subject.client.opened()
        assert opened is not client
        # A stream that lived for less than 60 s counts as one failure: at most 0.5 s twice over.
        assert passed <= 1_100


async def test_a_server_that_asks_for_a_pause_gets_it() -> None:
    async with welcomed() as (server, stream, subject, _):
        stream.end(refusal("STORE_UNAVAILABLE", retry_after_ms=7_000))
        await eventually(lambda: subject.recorder.ends != [])

        passed = await advance_until(subject.clock, lambda: len(server.streams) == 2)
        assert 7_000 <= passed <= 8_100


async def test_a_superseded_client_stays_away_for_thirty_seconds() -> None:
    async with welcomed() as (server, stream, subject, _):
        stream.end(refusal("SESSION_SUPERSEDED", grpc.StatusCode.ABORTED))
        await eventually(lambda: subject.recorder.ends != [])

        passed = await advance_until(subject.clock, lambda: len(server.streams) == 2)
        assert 30_000 <= passed <= 61_100


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("DEVICE_REVOKED", grpc.StatusCode.PERMISSION_DENIED),
        ("BAD_SIGNATURE", grpc.StatusCode.UNAUTHENTICATED),
        ("UNSUPPORTED_PROTOCOL_VERSION", grpc.StatusCode.FAILED_PRECONDITION),
        ("DAEMON_BELOW_FLOOR", grpc.StatusCode.FAILED_PRECONDITION),
        ("DEVICE_ID_CONFLICT", grpc.StatusCode.FAILED_PRECONDITION),
        ("PROTOCOL_VIOLATION", grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_some_refusals_are_for_good(reason: str, code: grpc.StatusCode) -> None:
    async with scripted_server(PLANE) as server, connecting(server) as subject:
        stream = await server.stream()
        await stream.challenge()
        await stream.next_item("hello")
        stream.end(refusal(reason, code))

        with pytest.raises(ServiceError) as caught:
            await subject.client.opened()
        assert caught.value.reason == reason
        assert [error.reason for error in subject.recorder.refusals] == [reason]
        await subject.clock.advance_async(300_000)
        assert len(server.streams) == 1


async def test_a_refusal_for_good_ends_a_stream_that_was_accepted_too() -> None:
    async with welcomed() as (_, stream, subject, _):
        stream.end(refusal("DEVICE_REVOKED", grpc.StatusCode.PERMISSION_DENIED))

        await eventually(lambda: subject.recorder.refusals != [])
        with pytest.raises(ServiceError):
            await subject.client.opened()


async def test_a_bare_refusal_is_tried_again() -> None:
    async with scripted_server(PLANE) as server, connecting(server) as subject:
        (await server.stream()).end_bare(grpc.StatusCode.PERMISSION_DENIED, "RBAC: access denied")

        await advance_until(subject.clock, lambda: len(server.streams) == 2)
        await server.streams[1].welcome()
        await subject.client.opened()


async def test_after_five_failures_there_is_another_channel() -> None:
    async with scripted_server(PLANE) as server, connecting(server, address="127.0.0.1:1") as subject:
        await advance_until(subject.clock, lambda: len(subject.channels) == 2)

        assert subject.client.failure is not None
        assert subject.client.failure.code is grpc.StatusCode.UNAVAILABLE


async def test_a_waiting_client_can_be_closed() -> None:
    async with scripted_server(PLANE) as server, connecting(server, address="127.0.0.1:1") as subject:
        await eventually(lambda: subject.client.failure is not None)
        waiting = asyncio.ensure_future(subject.client.opened())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


# -- moving -----------------------------------------------------------------------------


def drain(after: float = 1.0) -> Any:
    asked = session_pb2.DrainNotice(
        reconnect_after=duration(after), deadline=duration(20), reason=session_pb2.DRAIN_REASON_STREAM_AGE
    )
    return ServerItem(drain_notice=asked)


async def test_on_drain_the_new_stream_is_open_before_the_old_one_is_closed() -> None:
    async with welcomed() as (server, old, subject, client):
        await old.send(drain(after=2))
        await client.moving.wait()
        await subject.clock.advance_async(1_900)
        await asyncio.sleep(0.05)
        assert len(server.streams) == 1
        await subject.clock.advance_async(100)

        new = await server.stream(1)
        assert old.items("goodbye") == []
        assert subject.client.stream is client
        await new.welcome(session_id="s-2")
        await old.next_item("goodbye")
        await eventually(lambda: subject.client.stream is not client)
        old.end()

        await eventually(lambda: client.end is not None)
        assert client.end is not None
        assert client.end.cause is EndCause.GOODBYE
        assert subject.recorder.ends == []
        # On a connection of its own: the old one leads to the server that is to be left.
        assert len(subject.channels) == 2


async def test_a_call_works_on_the_old_stream_while_the_client_moves() -> None:
    async with welcomed() as (server, old, subject, client):
        await old.send(drain(after=0))
        await server.stream(1)
        answer = client.request("get_job", site_plane_pb2.GetJobRequest(job_id="a"))
        call = await old.next_item("call")
        await old.send(
            ServerItem(reply=site_plane_pb2.SiteReply(id=call.id, get_job=site_plane_pb2.GetJobResponse()))
        )

        assert (await answer) == site_plane_pb2.GetJobResponse()
        assert subject.client.stream is client


async def test_being_superseded_by_oneself_while_moving_is_no_reason_to_stay_away() -> None:
    async with welcomed() as (server, old, subject, client):
        await old.send(drain(after=0))
        new = await server.stream(1)
        await new.challenge()
        await new.next_item("hello")
        old.end(refusal("SESSION_SUPERSEDED", grpc.StatusCode.ABORTED))
        await client.ended.wait()
        await new.send(ServerItem(welcome=make_welcome(session_id="s-2")))

        opened = await subject.client.opened()
        assert opened.welcome.session_id == "s-2"
        assert subject.recorder.ends == []


async def test_when_no_new_stream_can_be_had_the_end_of_the_old_one_is_told() -> None:
    async with welcomed() as (server, old, subject, client):
        await old.send(drain(after=0))
        new = await server.stream(1)
        old.end(refusal("SERVER_DRAINING"))
        await client.ended.wait()
        new.end(refusal("SERVER_DRAINING"))

        await eventually(lambda: len(subject.recorder.ends) == 1)
        await advance_until(subject.clock, lambda: len(server.streams) == 3)
        await server.streams[2].welcome()
        await subject.client.opened()
