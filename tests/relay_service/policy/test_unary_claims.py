"""Unary claims wait for the policy, and their repeats get the same grants."""

import asyncio

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from sealwork.relay.v1 import job_pb2, site_plane_pb2
from tests.harness.waiting import eventually
from tests.relay_service.planes.scene import claim
from tests.relay_service.policy.scripted_policy import Answer, PolicyRelay, grant_for, never, not_now
from tests.relay_service.relay_fixture import ref


async def test_a_unary_claim_waits_for_the_policy(asked: PolicyRelay) -> None:
    asked.policy.gate.clear()
    await asked.relay.enqueue("job-1", "job-2")
    calling = asyncio.create_task(asked.relay.daemon().call("ClaimJobs", claim(max_jobs=2)))
    await asked.policy.asked(2)
    assert not calling.done()
    asked.policy.gate.set()
    answer = await calling
    assert {granted.stub.id for granted in answer.granted} == {"job-1", "job-2"}
    assert all(granted.HasField("grant") for granted in answer.granted)


async def test_a_unary_claim_gets_what_the_policy_agrees_to(asked: PolicyRelay) -> None:
    asked.policy.decide = lambda request: (
        never(request) if request.stub.id == "job-1" else Answer(grant=grant_for(request))
    )
    await asked.relay.enqueue("job-1", "job-2")
    answer = await asked.relay.daemon().call("ClaimJobs", claim(max_jobs=2))
    assert [granted.stub.id for granted in answer.granted] == ["job-2"]


async def test_a_unary_claim_that_is_declined_goes_on_waiting(asked: PolicyRelay) -> None:
    asked.policy.decide = lambda request: (
        never(request) if request.stub.id == "job-1" else Answer(grant=grant_for(request))
    )
    await asked.relay.enqueue("job-1")
    request = claim(wait=Duration(seconds=10))
    calling = asyncio.create_task(asked.relay.daemon().call("ClaimJobs", request))
    await asked.policy.asked()
    await asked.relay.enqueue("job-2")
    assert [granted.stub.id for granted in (await calling).granted] == ["job-2"]


async def test_a_unary_claim_that_is_declined_is_answered_empty(asked: PolicyRelay) -> None:
    asked.policy.decide = not_now
    await asked.relay.enqueue("job-1")
    answer = await asked.relay.daemon().call("ClaimJobs", claim())
    assert not answer.granted
    assert await asked.relay.state("job-1") == "queued"


async def test_a_unary_claim_whose_time_is_up_still_gets_what_it_has_won(asked: PolicyRelay) -> None:
    asked.policy.gate.clear()
    request = claim(wait=Duration(seconds=10))
    calling = asyncio.create_task(asked.relay.daemon().call("ClaimJobs", request))
    room = asked.relay.server.relay.dispatch._waiting
    await eventually(lambda: len(room.everyone()) == 1)
    await asked.relay.clock.advance_async(8_000)
    await asked.relay.enqueue("job-1")
    await asked.policy.asked()
    await asked.relay.clock.advance_async(2_500)
    assert not calling.done()
    asked.policy.gate.set()
    assert [granted.stub.id for granted in (await calling).granted] == ["job-1"]


async def test_a_repeated_claim_answers_the_same_grants(asked: PolicyRelay) -> None:
    await asked.relay.enqueue("job-1", "job-2")
    daemon = asked.relay.daemon()
    first = await daemon.call("ClaimJobs", claim("again", max_jobs=2))
    asked.policy.decide = never
    second = await daemon.call("ClaimJobs", claim("again", max_jobs=2))
    assert [granted.grant for granted in second.granted] == [granted.grant for granted in first.granted]
    assert [ref(granted) for granted in second.granted] == [ref(granted) for granted in first.granted]
    assert len(asked.policy.grants) == 2


async def test_a_repeated_claim_is_answered_while_the_policy_is_away(asked: PolicyRelay) -> None:
    await asked.relay.enqueue("job-1")
    daemon = asked.relay.daemon()
    first = await daemon.call("ClaimJobs", claim("again"))
    await asked.policy.stop()
    for number in range(5):
        request = site_plane_pb2.EnqueueJobRequest(stub=asked.relay.stub(f"lost-{number}"))
        await asked.relay.site().refused("EnqueueJob", request)
    second = await daemon.call("ClaimJobs", claim("again"))
    assert [granted.grant for granted in second.granted] == [granted.grant for granted in first.granted]


async def test_a_claim_that_is_given_up_returns_what_it_has_won(asked: PolicyRelay) -> None:
    asked.policy.gate.clear()
    await asked.relay.enqueue("job-1")
    calling = asyncio.create_task(asked.relay.daemon().call("ClaimJobs", claim("again")))
    await asked.policy.asked()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    parts = asked.relay.server.relay.dispatch._authorship
    assert parts is not None
    await eventually(lambda: not parts._batches)
    asked.policy.gate.set()
    await asked.relay.becomes("job-1", "queued")
    answer = await asked.relay.daemon().call("ClaimJobs", claim("again"))
    assert [granted.stub.id for granted in answer.granted] == ["job-1"]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(),
        Answer(grant=job_pb2.SignedGrant()),
        Answer(grant=job_pb2.SignedGrant(grant_id="x" * 9_000)),
    ],
)
async def test_what_is_no_answer_counts_as_none(asked: PolicyRelay, answer: Answer) -> None:
    asked.policy.decide = lambda _: answer
    await asked.relay.enqueue("job-1")
    assert not (await asked.relay.daemon().call("ClaimJobs", claim())).granted
    job = await asked.relay.store.job("demo", "job-1")
    assert job is not None
    assert [runner for runner, _ in job.retry_after_ms] == ["runner-1"]
    assert asked.relay.server.metrics.value(
        "relay_policy_questions_total", method="AuthorGrant", outcome="unavailable"
    )


async def test_one_quick_retry_when_the_policy_was_not_reached(asked: PolicyRelay) -> None:
    await asked.relay.enqueue("job-1")
    asked.policy.failing.append(grpc.StatusCode.UNAVAILABLE)
    answer = await asked.relay.daemon().call("ClaimJobs", claim())
    assert [granted.stub.id for granted in answer.granted] == ["job-1"]
    assert len(asked.policy.grants) == 2
