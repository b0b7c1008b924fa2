"""A client's session over a real connection to a server that the test plays: opening, sending, calls."""

import asyncio
import hashlib

import grpc
import grpc.aio
import pytest
from nacl.signing import SigningKey

from sealwork.relay.v1 import site_plane_pb2
from sealwork.session.v1 import session_pb2
from service_common.errors import ServiceError
from service_common.session_client import (
    BodyTooLarge,
    SessionLost,
)
from tests.harness.waiting import eventually
from tests.service_common.scripted_server import (
    scripted_server,
)
from tests.service_common.session_subject import (
    PLANE,
    SEED,
    Item,
    ServerItem,
    advance_until,
    connecting,
    notice,
    refusal,
    welcomed,
)

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
