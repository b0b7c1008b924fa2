"""Payloads that leave only when somebody has agreed, and jobs that a process gives up."""

import asyncio

import pytest

from relay_service.client import GeneratePayload, HandOver, JobAbandonedError
from sealwork.relay.v1 import job_pb2, site_plane_pb2
from tests.relay_service.client.real_relay import OTHER_DEVICE_KEYS
from tests.relay_service.client.scripted_site import opened_payload, played_relay, please_seal, result_ready

HELLO = GeneratePayload("hello")


class Gate:
    """Agrees as it is told to."""

    def __init__(self, *, agrees: bool = True, failure: Exception | None = None) -> None:
        self.asked: list[HandOver] = []
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.agrees = agrees
        self.failure = failure

    async def __call__(self, hand_over: HandOver) -> bool:
        self.asked.append(hand_over)
        self.entered.set()
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        return self.agrees


async def test_nothing_leaves_before_somebody_has_agreed() -> None:
    gate = Gate()
    async with played_relay() as relay:
        job = await relay.publish(HELLO, admit=gate)
        await relay.notify("n-1", job.id, please_seal=please_seal())
        await gate.entered.wait()
        assert [call.WhichOneof("request") for call in relay.stream.items("call")] == ["enqueue_job"]
        gate.open.set()
        assert opened_payload(await relay.sealed()) == '{"prompt":"hello"}'
        assert gate.asked == [HandOver(job.id, "l-1", "desk", 10.0)]


async def test_every_grant_is_asked_about() -> None:
    gate = Gate()
    gate.open.set()
    async with played_relay() as relay:
        job = await relay.publish(HELLO, admit=gate)
        await relay.notify("n-1", job.id, please_seal=please_seal())
        assert (await relay.sealed()).lease_id == "l-1"
        await relay.notify("n-2", job.id, please_seal=please_seal(OTHER_DEVICE_KEYS, lease="l-2"))
        assert (await relay.sealed()).lease_id == "l-2"
        assert [each.lease_id for each in gate.asked] == ["l-1", "l-2"]


@pytest.mark.parametrize("gate", [Gate(agrees=False), Gate(failure=RuntimeError("no"))])
async def test_without_agreement_nothing_leaves(gate: Gate) -> None:
    async with played_relay() as relay:
        job = await relay.publish(HELLO, admit=gate)
        await relay.notify("n-1", job.id, please_seal=please_seal())
        await gate.entered.wait()
        gate.open.set()
        # The next call is another job's: there was none for this one.
        await relay.publish(HELLO, job_id="j-2")
        assert [call.WhichOneof("request") for call in relay.stream.items("call")] == ["enqueue_job"] * 2


async def test_an_abandoned_job_gives_nothing_away_any_more() -> None:
    gate = Gate()
    async with played_relay() as relay:
        job = await relay.publish(HELLO, admit=gate)
        await relay.notify("n-1", job.id, please_seal=please_seal())
        await gate.entered.wait()
        job.abandon()
        gate.open.set()
        await relay.notify("n-2", job.id, please_seal=please_seal(OTHER_DEVICE_KEYS, lease="l-2"))
        with pytest.raises(JobAbandonedError):
            await job.result(5)
        await relay.publish(HELLO, job_id="j-2")
        assert [call.WhichOneof("request") for call in relay.stream.items("call")] == ["enqueue_job"] * 2


async def test_an_abandoned_job_is_taken_up_by_its_id() -> None:
    async with played_relay() as relay:
        first = await relay.publish(HELLO, job_id="j-1")
        first.abandon()
        again = await relay.publish(HELLO, job_id="j-1")
        # The first handle does not speak for the second job of this id.
        first.abandon()
        await relay.notify("n-1", "j-1", please_seal=please_seal())
        await relay.sealed()
        await relay.notify("n-2", "j-1", result_ready=result_ready("j-1"))
        assert (await again.result(5)).text == "an answer"


async def test_a_job_may_be_settled_by_hand_where_others_are_settled_at_once() -> None:
    async with played_relay() as relay:
        job = await relay.publish(HELLO, job_id="j-1", acknowledge=False)
        await relay.notify("n-1", "j-1", please_seal=please_seal())
        await relay.sealed()
        await relay.notify("n-2", "j-1", result_ready=result_ready("j-1"))
        await job.result(5)
        await relay.publish(HELLO, job_id="j-2")
        job.acknowledge()
        assert list((await relay.call()).ack_results.job_ids) == ["j-1"]


async def test_a_deadline_may_be_an_instant() -> None:
    async with played_relay() as relay:
        enqueueing = asyncio.ensure_future(
            relay.site.enqueue(HELLO, owner="alice", job_id="j-1", deadline_at_ms=4_000_000_000_123)
        )
        call = await relay.call()
        deadline = call.enqueue_job.stub.deadline_time
        assert (deadline.seconds, deadline.nanos) == (4_000_000_000, 123_000_000)
        queued = site_plane_pb2.EnqueueJobResponse(job_id="j-1", state=job_pb2.JOB_STATE_QUEUED, created=True)
        await relay.reply(call, enqueue_job=queued)
        await enqueueing
