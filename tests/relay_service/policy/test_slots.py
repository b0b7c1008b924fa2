"""Needs are asked about before the store."""

from typing import Any

import grpc
import pytest

from sealwork.relay.v1 import policy_pb2, site_plane_pb2
from tests.relay_service.planes.scene import claim
from tests.relay_service.policy.scripted_policy import PolicyRelay
from tests.relay_service.raw_client import KIND, Refusal
from tests.relay_service.relay_fixture import RelayUnderTest, keys_of

VERDICTS = [
    (policy_pb2.SLOT_VERDICT_NOT_DECLARED, "PURPOSE_NOT_DECLARED"),
    (policy_pb2.SLOT_VERDICT_UNMAPPED, "SLOT_UNSATISFIABLE"),
    (policy_pb2.SLOT_VERDICT_WAITING, "SLOT_WAITING"),
]


def request(relay: RelayUnderTest, job_id: str = "job-1", **fields: Any) -> site_plane_pb2.EnqueueJobRequest:
    return site_plane_pb2.EnqueueJobRequest(stub=relay.stub(job_id, **fields))


async def refused(relay: RelayUnderTest, **fields: Any) -> Refusal:
    return await relay.site().refused("EnqueueJob", request(relay, **fields))


async def on_stream(relay: RelayUnderTest, **fields: Any) -> Any:
    """The reply to a call on the site's stream."""
    stream = await relay.site().connect()
    await stream.send(call=site_plane_pb2.SiteCall(id=1, enqueue_job=request(relay, **fields)))
    return await stream.next("reply")


async def test_the_need_is_what_is_asked_about(asked: PolicyRelay) -> None:
    await asked.relay.enqueue("job-1", purpose="writing")
    await asked.relay.enqueue("job-2", owner="bob")
    questions = [(slot.site_id, slot.owner, slot.purpose, slot.kind) for slot in asked.policy.slots]
    assert questions == [("demo", "alice", "writing", KIND), ("demo", "bob", "default", KIND)]
    assert await asked.relay.state("job-1") == "queued"


@pytest.mark.parametrize(("verdict", "reason"), VERDICTS)
async def test_each_verdict_has_its_reason(asked: PolicyRelay, verdict: Any, reason: str) -> None:
    asked.policy.verdict = verdict
    refusal = await refused(asked.relay)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, reason)
    assert (refusal.retry_after_ms, refusal.metadata) == (None, ())
    assert await asked.relay.state("job-1") is None


async def test_a_call_on_the_stream_is_refused_alike(asked: PolicyRelay) -> None:
    asked.policy.verdict = policy_pb2.SLOT_VERDICT_UNMAPPED
    reply = await on_stream(asked.relay)
    assert Refusal.of_status(reply.error) == await refused(asked.relay)


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
    ],
)
async def test_a_policy_that_fails_is_unavailable(asked: PolicyRelay, code: grpc.StatusCode) -> None:
    asked.policy.failing.append(code)
    refusal = await refused(asked.relay)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "POLICY_UNAVAILABLE")
    assert refusal.retry_after_ms == 1_000
    assert "secret" not in repr(refusal)
    assert len(asked.policy.slots) == 1
    assert await asked.relay.state("job-1") is None


async def test_no_verdict_is_a_failure(asked: PolicyRelay) -> None:
    for verdict in (policy_pb2.SLOT_VERDICT_UNSPECIFIED, 77):
        asked.policy.verdict = verdict
        assert (await refused(asked.relay)).reason == "POLICY_UNAVAILABLE"


async def test_a_policy_that_is_away_is_unavailable(asked: PolicyRelay) -> None:
    await asked.policy.stop()
    refusal = await refused(asked.relay)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "POLICY_UNAVAILABLE")
    assert Refusal.of_status((await on_stream(asked.relay)).error) == refusal


async def test_one_quick_retry_when_the_policy_was_not_reached(asked: PolicyRelay) -> None:
    asked.policy.failing.append(grpc.StatusCode.UNAVAILABLE)
    await asked.relay.enqueue("job-1")
    assert len(asked.policy.slots) == 2
    asked.policy.failing.extend([grpc.StatusCode.UNAVAILABLE] * 2)
    assert (await refused(asked.relay, job_id="job-2")).reason == "POLICY_UNAVAILABLE"
    assert len(asked.policy.slots) == 4


async def test_nothing_is_asked_about_a_stub_that_is_refused_anyway(asked: PolicyRelay) -> None:
    assert (await refused(asked.relay, owner="")).reason == "FIELD_INVALID"
    foreign = keys_of("other").key_id
    assert (await refused(asked.relay, site=foreign)).reason == "STUB_SITE_MISMATCH"
    assert asked.policy.slots == []


async def test_who_consents_makes_no_difference(asked: PolicyRelay) -> None:
    asked.policy.verdict = policy_pb2.SLOT_VERDICT_UNMAPPED
    answers = {await refused(asked.relay, owner=owner) for owner in ("alice", "bob", "nobody", "\U0001f600")}
    assert len(answers) == 1
    assert len(asked.policy.slots) == 4


@pytest.mark.parametrize("verdict", [verdict for verdict, _ in VERDICTS])
async def test_a_job_that_is_there_is_answered_whatever_the_verdict_is_now(
    asked: PolicyRelay, verdict: Any
) -> None:
    await asked.relay.enqueue("job-1")
    asked.policy.verdict = verdict
    answer = await asked.relay.site().call("EnqueueJob", request(asked.relay))
    assert (answer.job_id, answer.created) == ("job-1", False)


async def test_a_job_that_is_there_is_answered_without_the_policy(asked: PolicyRelay) -> None:
    await asked.relay.enqueue("job-1")
    await asked.policy.stop()
    answer = await asked.relay.site().call("EnqueueJob", request(asked.relay))
    assert (answer.job_id, answer.created) == ("job-1", False)
    assert (await refused(asked.relay, job_id="job-2")).reason == "POLICY_UNAVAILABLE"


async def test_several_stubs_are_asked_about_once_a_need(asked: PolicyRelay) -> None:
    stubs = [asked.relay.stub(f"job-{number}") for number in range(3)]
    stubs += [asked.relay.stub("job-3", purpose="writing"), asked.relay.stub("job-4", owner="")]
    batch = site_plane_pb2.EnqueueJobsRequest(stubs=stubs)
    answer = await asked.relay.site().call("EnqueueJobs", batch)
    assert [result.WhichOneof("outcome") for result in answer.results] == ["enqueued"] * 4 + ["error"]
    assert sorted(slot.purpose for slot in asked.policy.slots) == ["default", "writing"]


async def test_each_of_several_stubs_has_its_own_refusal(asked: PolicyRelay) -> None:
    await asked.relay.enqueue("job-1")
    asked.policy.verdict = policy_pb2.SLOT_VERDICT_WAITING
    stubs = [asked.relay.stub("job-1"), asked.relay.stub("job-2")]
    answer = await asked.relay.site().call("EnqueueJobs", site_plane_pb2.EnqueueJobsRequest(stubs=stubs))
    assert answer.results[0].enqueued.created is False
    assert Refusal.of_status(answer.results[1].error).reason == "SLOT_WAITING"


async def test_a_claim_is_not_asked_about_needs(asked: PolicyRelay) -> None:
    await asked.relay.enqueue("job-1")
    await asked.relay.daemon().call("ClaimJobs", claim())
    assert len(asked.policy.slots) == 1
