"""A client's session over a real connection: silence, ends, coming back, moving."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from sealwork.relay.v1 import site_plane_pb2
from sealwork.session.v1 import session_pb2
from service_common.errors import ServiceError
from service_common.session_client import (
    EndCause,
)
from tests.harness.waiting import eventually
from tests.service_common.scripted_server import (
    duration,
    make_welcome,
    scripted_server,
)
from tests.service_common.session_subject import (
    PLANE,
    Item,
    ServerItem,
    advance_until,
    connecting,
    refusal,
    welcomed,
)

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
