"""What a site does with each notice, seen from the relay's end of the stream."""

import asyncio
import base64
import hashlib
from typing import Any

import grpc
import pytest
from nacl.signing import SigningKey

from relay_service.client import (
    CanceledOutcome,
    ErrorOutcome,
    GeneratePayload,
    JobEndedError,
    JobEndReason,
    OkOutcome,
    RelayError,
    ResultRefusedError,
    SiteClosedError,
)
from relay_service.client.refusals import Refusal
from sealwork.relay.v1 import job_pb2, site_plane_pb2
from sealwork.session.v1 import session_pb2
from service_common.errors import ServiceError
from tests.harness.waiting import eventually
from tests.relay_service.client.real_relay import DEVICE_KEYS, OTHER_DEVICE_KEYS, SITE_KEYS
from tests.relay_service.client.scripted_site import (
    SERVICE,
    opened_payload,
    played_relay,
    please_seal,
    result_ready,
)

HELLO = GeneratePayload("hello")


def refusal(reason: str, code: grpc.StatusCode = grpc.StatusCode.FAILED_PRECONDITION) -> ServiceError:
    return ServiceError(code, reason, "no")


# -- publishing -------------------------------------------------------------------------


async def test_the_hello_states_who_and_how_much() -> None:
    async with played_relay() as relay:
        assert relay.hello.site_id == "shop"
        assert relay.hello.protocol_version == 1
        assert relay.hello.client_name == "sealwork-python"
        assert len(relay.hello.process_id) == 32
        assert list(relay.hello.capabilities) == [2]
        assert relay.hello.credit.limit == 256


async def test_a_stub_tells_nothing_of_the_payload_but_its_size() -> None:
    async with played_relay() as relay:
        publishing = asyncio.ensure_future(
            relay.site.enqueue(
                GeneratePayload("x" * 4_001), owner="alice", audience="private", purpose="mail", job_id="j-1"
            )
        )
        stub = (await relay.call()).enqueue_job.stub
        publishing.cancel()

    assert (stub.id, stub.kind, stub.owner, stub.purpose) == ("j-1", "llm.generate", "alice", "mail")
    assert stub.site == "BYOLLM-6HTG-Z65X-B7YF-S53D-MHDA-NFMK"
    assert stub.audience == job_pb2.AUDIENCE_PRIVATE
    assert stub.size_class == job_pb2.SIZE_CLASS_MEDIUM
    assert len(stub.SerializeToString()) < 200


async def test_a_refused_job_is_forgotten_here() -> None:
    async with played_relay() as relay:
        publishing = asyncio.ensure_future(relay.site.enqueue(HELLO, owner="alice", job_id="j-1"))
        call = await relay.call()
        error = refusal("QUOTA_EXCEEDED", grpc.StatusCode.RESOURCE_EXHAUSTED)
        await relay.reply(call, error=error.to_status("relay.sealwork.dev"))
        with pytest.raises(RelayError, match="acknowledge results first"):
            await publishing

        # Published anew when it is asked for again.
        again = asyncio.ensure_future(relay.site.enqueue(HELLO, owner="alice", job_id="j-1"))
        assert (await relay.call()).enqueue_job.stub.id == "j-1"
        again.cancel()


async def test_what_was_lost_with_the_stream_is_asked_again_by_a_signed_call() -> None:
    async with played_relay() as relay:
        answer = site_plane_pb2.EnqueueJobResponse(job_id="j-1", created=True)
        relay.server.unary[SERVICE + "EnqueueJob"] = lambda _: answer.SerializeToString()
        publishing = asyncio.ensure_future(relay.site.enqueue(HELLO, owner="alice", job_id="j-1"))
        call = await relay.call()
        relay.stream.end(refusal("SERVER_DRAINING", grpc.StatusCode.UNAVAILABLE))
        assert (await publishing).id == "j-1"

        ((method, metadata, body),) = relay.server.seen("EnqueueJob")
        assert body == call.enqueue_job.SerializeToString()
        nonce = metadata["sealwork-nonce"]
        lines = (
            "sealwork/v1/request",
            "/sealwork.relay.v1.SitePlaneService/EnqueueJob",
            "shop",
            metadata["sealwork-issued-at"],
            nonce,
            hashlib.sha256(body).hexdigest(),
        )
        signature = base64.urlsafe_b64decode(metadata["sealwork-signature"] + "==")
        SigningKey(b"\x01" * 32).verify_key.verify("\n".join(lines).encode(), signature)
        assert len(base64.urlsafe_b64decode(nonce + "==")) == 16
        assert metadata["sealwork-protocol"] == "1"
        assert method == SERVICE + "EnqueueJob"


async def test_a_call_that_finds_nobody_is_made_again_with_a_fresh_nonce() -> None:
    async with played_relay(streams=True) as relay:
        answers: list[Any] = [
            refusal("STORE_UNAVAILABLE", grpc.StatusCode.UNAVAILABLE),
            refusal("REPLAYED", grpc.StatusCode.UNAUTHENTICATED),
            site_plane_pb2.CancelJobResponse(cancelled=True).SerializeToString(),
        ]

        def answer(_: bytes) -> bytes:
            match answers.pop(0):
                case ServiceError() as error:
                    raise error
                case bytes() as body:
                    return body
            raise AssertionError

        relay.server.unary[SERVICE + "CancelJob"] = answer
        relay.stream.end(refusal("SERVER_DRAINING", grpc.StatusCode.UNAVAILABLE))
        await relay.stream.gone.wait()
        await eventually(lambda: relay.site._session.stream is None)

        assert await relay.site.cancel("j-1") is True
        nonces = {metadata["sealwork-nonce"] for _, metadata, _ in relay.server.seen("CancelJob")}
        assert len(nonces) >= 2


# -- sealing ----------------------------------------------------------------------------


async def test_the_payload_is_sealed_to_the_device_that_claimed() -> None:
    async with played_relay() as relay:
        job = await relay.publish(HELLO)
        await relay.notify("n-1", job.id, please_seal=please_seal())
        request = await relay.sealed()
        await job.sealed(5)

        assert (request.job_id, request.lease_id) == (job.id, "l-1")
        assert request.envelope.recipient_key_id == DEVICE_KEYS.key_id
        assert request.envelope.sender_key_id == SITE_KEYS.key_id
        assert opened_payload(request) == '{"prompt":"hello"}'


async def test_a_notice_that_comes_again_is_not_handled_again() -> None:
    async with played_relay() as relay:
        job = await relay.publish(HELLO)
        await relay.notify("n-1", job.id, please_seal=please_seal(), delivery_attempt=1)
        await relay.notify("n-1", job.id, please_seal=please_seal(), delivery_attempt=2)
        await relay.sealed()
        await relay.notify("n-1", job.id, please_seal=please_seal(), delivery_attempt=3)
        await relay.notify("n-2", job.id, please_seal=please_seal(lease="l-2"))

        assert (await relay.sealed()).lease_id == "l-2"


async def test_a_payload_that_was_not_taken_is_sealed_again_when_the_notice_comes_again() -> None:
    async with played_relay() as relay:
        job = await relay.publish(HELLO)
        await relay.notify("n-1", job.id, please_seal=please_seal())
        call = await relay.call()
        error = refusal("STORE_UNAVAILABLE", grpc.StatusCode.UNAVAILABLE).to_status("d")
        await relay.reply(call, error=error)
        await relay.notify("n-1", job.id, please_seal=please_seal())

        assert (await relay.sealed()).lease_id == "l-1"


async def test_a_requeued_job_is_sealed_anew_to_the_next_device() -> None:
    async with played_relay() as relay:
        job = await relay.publish(HELLO)
        await relay.notify("n-1", job.id, please_seal=please_seal())
        await relay.sealed()
        requeued = site_plane_pb2.JobRequeued(reason=site_plane_pb2.REQUEUE_REASON_LEASE_LAPSED, count=1)
        await relay.notify("n-2", job.id, job_requeued=requeued)
        settling = await relay.call()
        await relay.notify("n-3", job.id, please_seal=please_seal(OTHER_DEVICE_KEYS, lease="l-2"))
        request = await relay.sealed()

        assert list(settling.ack_results.notice_ids) == ["n-2"]
        assert request.envelope.recipient_key_id == OTHER_DEVICE_KEYS.key_id
        assert opened_payload(request, OTHER_DEVICE_KEYS) == '{"prompt":"hello"}'
        assert job.requeues == 1


async def test_nothing_is_sealed_to_keys_that_do_not_belong_together() -> None:
    async with played_relay() as relay:
        job = await relay.publish(HELLO)
        forged = please_seal()
        forged.device.encryption = OTHER_DEVICE_KEYS.public.encryption
        await relay.notify("n-1", job.id, please_seal=forged)
        await relay.notify("n-2", job.id, please_seal=please_seal(lease="l-2"))

        assert (await relay.sealed()).lease_id == "l-2"


async def test_nothing_is_sealed_to_a_device_that_the_site_does_not_trust() -> None:
    asked: list[tuple[str, str]] = []

    def trust(device: Any, runner_id: str) -> bool:
        asked.append((device.key_id, runner_id))
        return bool(device == OTHER_DEVICE_KEYS.public)

    async with played_relay(trust=trust) as relay:
        job = await relay.publish(HELLO)
        await relay.notify("n-1", job.id, please_seal=please_seal())
        await relay.notify("n-2", job.id, please_seal=please_seal(OTHER_DEVICE_KEYS, lease="l-2"))

        assert (await relay.sealed()).lease_id == "l-2"
        assert asked == [(DEVICE_KEYS.key_id, "desk"), (OTHER_DEVICE_KEYS.key_id, "desk")]


async def test_a_payload_that_can_never_be_sealed_ends_the_job() -> None:
    async with played_relay() as relay:
        job = await relay.publish("\ud800", kind="text.odd")
        await relay.notify("n-1", job.id, please_seal=please_seal())
        call = await relay.call()

        assert call.cancel_job.job_id == job.id
        with pytest.raises(ValueError, match="surrogate"):
            await job.result(5)


# -- results ----------------------------------------------------------------------------


async def _with_sealed_job(relay: Any) -> Any:
    job = await relay.publish(HELLO)
    await relay.notify("n-1", job.id, please_seal=please_seal())
    await relay.sealed()
    return job


@pytest.mark.parametrize(
    "outcome",
    [OkOutcome("an answer"), ErrorOutcome("timeout", "too slow", retryable=True), CanceledOutcome()],
)
async def test_a_result_is_opened_and_then_settled(outcome: Any) -> None:
    async with played_relay() as relay:
        job = await _with_sealed_job(relay)
        await relay.notify("n-2", job.id, result_ready=result_ready(job.id, outcome))
        result = await job.result(5)
        settling = await relay.call()

        assert result.outcome == outcome
        assert result.ran.duration_ms == 12
        assert list(settling.ack_results.job_ids) == [job.id]


async def test_nothing_is_settled_before_the_result_was_taken() -> None:
    async with played_relay() as relay:
        job = await _with_sealed_job(relay)
        await relay.notify("n-2", job.id, result_ready=result_ready(job.id))
        await eventually(lambda: job.done)
        await relay.notify("n-2", job.id, result_ready=result_ready(job.id))
        other = await relay.publish(HELLO)

        assert [call.WhichOneof("request") for call in relay.stream.items("call")] == [
            "enqueue_job",
            "seal_payload",
            "enqueue_job",
        ]
        assert not other.done


async def test_a_notice_that_crossed_its_settlement_is_settled_again() -> None:
    orphans: list[Any] = []
    async with played_relay(on_orphan=orphans.append) as relay:
        job = await _with_sealed_job(relay)
        await relay.notify("n-2", job.id, result_ready=result_ready(job.id))
        await job.result(5)
        await relay.call()
        await relay.notify("n-2", job.id, result_ready=result_ready(job.id))

        assert list((await relay.call()).ack_results.job_ids) == [job.id]
        assert orphans == []


async def test_a_result_that_is_not_carried_inline_is_fetched() -> None:
    async with played_relay() as relay:
        job = await _with_sealed_job(relay)
        ready = result_ready(job.id)
        bare = site_plane_pb2.ResultReady()
        bare.CopyFrom(ready)
        bare.ClearField("envelope")
        await relay.notify("n-2", job.id, result_ready=bare)
        call = await relay.call()
        assert call.get_result.job_id == job.id
        await relay.reply(call, get_result=_fetched(ready))

        assert (await job.result(5)).text == "an answer"


async def test_a_large_result_is_fetched_by_unary_call() -> None:
    async with played_relay() as relay:
        job = await _with_sealed_job(relay)
        ready = result_ready(job.id, OkOutcome("a" * 100_000))
        relay.server.unary[SERVICE + "GetResult"] = lambda _: _fetched(ready).SerializeToString()
        bare = site_plane_pb2.ResultReady()
        bare.CopyFrom(ready)
        bare.ClearField("envelope")
        await relay.notify("n-2", job.id, result_ready=bare)

        assert (await job.result(5)).text == "a" * 100_000
        assert len(relay.server.seen("GetResult")) == 1


def _fetched(ready: site_plane_pb2.ResultReady) -> site_plane_pb2.GetResultResponse:
    return site_plane_pb2.GetResultResponse(
        envelope=ready.envelope,
        disposition=ready.disposition,
        runner_id=ready.runner_id,
        device=ready.device,
        lease_id=ready.lease_id,
        runner_owner=ready.runner_owner,
    )


async def test_a_disposition_that_is_not_what_was_sealed_is_refused() -> None:
    async with played_relay() as relay:
        job = await _with_sealed_job(relay)
        ready = result_ready(job.id, ErrorOutcome("timeout", "too slow", retryable=True))
        ready.disposition = job_pb2.DISPOSITION_OK
        await relay.notify("n-2", job.id, result_ready=ready)

        with pytest.raises(ResultRefusedError, match="disposition"):
            await job.result(5)
        # The relay will never have another: there is nothing to keep.
        assert list((await relay.call()).ack_results.job_ids) == [job.id]


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"signed_by": OTHER_DEVICE_KEYS}, Refusal.NOT_FOR_US),
        ({"deadline_at_ms": 1}, Refusal.EXPIRED),
        ({"sealed_for": "another-job"}, Refusal.CONTEXT_MISMATCH),
        ({"keys": OTHER_DEVICE_KEYS}, None),
    ],
)
async def test_a_result_that_is_not_the_devices_own_is_refused(
    options: dict[str, Any], refused: Refusal | None
) -> None:
    async with played_relay() as relay:
        job = await _with_sealed_job(relay)
        await relay.notify("n-2", job.id, result_ready=result_ready(job.id, **options))

        with pytest.raises(ResultRefusedError) as caught:
            await job.result(5)
        assert caught.value.refusal is refused


async def test_a_result_of_a_device_that_was_never_sealed_to_needs_trust() -> None:
    async with played_relay(trust=lambda device, _: device == DEVICE_KEYS.public) as relay:
        first, second = await relay.publish(HELLO), await relay.publish(HELLO)
        canceled = CanceledOutcome()
        await relay.notify("n-1", first.id, result_ready=result_ready(first.id, canceled))
        await relay.notify(
            "n-2", second.id, result_ready=result_ready(second.id, canceled, keys=OTHER_DEVICE_KEYS)
        )

        assert (await first.result(5)).disposition == "canceled"
        with pytest.raises(ResultRefusedError, match="not trusted"):
            await second.result(5)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (site_plane_pb2.JOB_END_REASON_EXPIRED, JobEndReason.EXPIRED),
        (site_plane_pb2.JOB_END_REASON_EVICTED_UNSEALED, JobEndReason.EVICTED_UNSEALED),
        (site_plane_pb2.JOB_END_REASON_CANCELLED, JobEndReason.CANCELLED),
        (site_plane_pb2.JOB_END_REASON_RESULT_DROPPED, JobEndReason.RESULT_DROPPED),
        (99, JobEndReason.UNKNOWN),
    ],
)
async def test_a_job_that_ends_without_a_result_tells_why(sent: Any, reason: JobEndReason) -> None:
    async with played_relay() as relay:
        job = await relay.publish(HELLO)
        await relay.notify("n-1", job.id, job_ended=site_plane_pb2.JobEnded(reason=sent))

        with pytest.raises(JobEndedError) as caught:
            await job.result(5)
        assert caught.value.reason is reason
        assert list((await relay.call()).ack_results.job_ids) == [job.id]


# -- the rest ---------------------------------------------------------------------------


async def test_notices_of_other_jobs_are_told_and_left_unsettled() -> None:
    orphans: list[Any] = []
    async with played_relay(on_orphan=orphans.append) as relay:
        await relay.notify("n-1", "old", result_ready=result_ready("old"))
        await relay.notify("n-2", "older", job_ended=site_plane_pb2.JobEnded())
        await relay.publish(HELLO)

        assert [(orphan.notice_id, orphan.job_id) for orphan in orphans] == [("n-1", "old"), ("n-2", "older")]
        assert [call.WhichOneof("request") for call in relay.stream.items("call")] == ["enqueue_job"]


async def test_a_notice_that_came_before_its_job_was_taken_up_is_not_lost() -> None:
    async with played_relay() as relay:
        await relay.notify("n-1", "j-1", please_seal=please_seal())
        taking_up = asyncio.ensure_future(relay.site.enqueue(HELLO, owner="alice", job_id="j-1"))
        call = await relay.call()
        known = site_plane_pb2.EnqueueJobResponse(job_id="j-1", state=job_pb2.JOB_STATE_AWAITING_PAYLOAD)
        await relay.reply(call, enqueue_job=known)

        assert (await relay.sealed()).lease_id == "l-1"
        await taking_up


async def test_credit_is_topped_up_when_half_of_it_is_used() -> None:
    async with played_relay() as relay:
        ended = site_plane_pb2.JobEnded()
        for number in range(127):
            await relay.notify(f"n-{number}", "other", job_ended=ended)
        await relay.publish(HELLO)
        assert relay.stream.items("credit") == []
        await relay.notify("n-127", "other", job_ended=ended)

        assert (await relay.stream.next_item("credit")).limit == 128 + 256


async def test_a_site_that_does_not_keep_up_asks_for_less() -> None:
    async with played_relay() as relay:
        relay.stream.end(refusal("SLOW_CONSUMER", grpc.StatusCode.RESOURCE_EXHAUSTED))
        again = await relay.server.stream(1)
        hello = await again.welcome()

        assert hello.credit.limit == 128
        assert hello.process_id == relay.hello.process_id


async def test_after_dropped_notices_the_inbox_is_read_and_open_jobs_are_published_again() -> None:
    async with played_relay() as relay:
        job = await relay.publish(HELLO, job_id="j-1")
        page = site_plane_pb2.ListNoticesResponse(
            notices=[
                site_plane_pb2.SiteNotice(notice_id="n-9", job_id="j-1", please_seal=please_seal()),
            ]
        )
        relay.server.unary[SERVICE + "ListNotices"] = lambda _: page.SerializeToString()
        await relay.stream.send(site_plane_pb2.SiteServerItem(resync_required=session_pb2.ResyncRequired()))
        assert (await relay.sealed()).job_id == "j-1"
        again = await relay.call()

        assert [stub.id for stub in again.enqueue_jobs.stubs] == ["j-1"]
        assert not job.done


async def test_closing_ends_what_waits() -> None:
    async with played_relay() as relay:
        job = await relay.publish(HELLO)
        waiting = asyncio.ensure_future(job.result())
        await asyncio.sleep(0)
        relay.stream.over.set()
        await relay.site.close()

        with pytest.raises(SiteClosedError):
            await waiting


async def test_a_result_can_be_waited_for_in_parts() -> None:
    async with played_relay() as relay:
        job = await _with_sealed_job(relay)
        with pytest.raises(TimeoutError):
            await job.result(0.01)
        waiting = asyncio.ensure_future(job.result())
        await asyncio.sleep(0)
        waiting.cancel()
        await relay.notify("n-2", job.id, result_ready=result_ready(job.id))

        assert (await job.result(5)).text == "an answer"
        assert (await job.result(5)).text == "an answer"
