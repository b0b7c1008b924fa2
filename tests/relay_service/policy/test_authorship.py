"""Grants are asked about before the site is told and before the device hears of them."""

import asyncio
from dataclasses import replace
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from relay_service.client.grants import Grant, verify_grant
from relay_service.core.identity import decode_base64url
from relay_service.core.projection import Consent, ProjectedDevice
from sealwork.relay.v1 import admin_pb2, daemon_plane_pb2, job_pb2, site_plane_pb2
from sealwork.session.v1 import session_pb2
from tests.harness.waiting import eventually
from tests.relay_service.planes.scene import claim
from tests.relay_service.policy.scripted_policy import Answer, PolicyRelay, grant_for, never, not_now
from tests.relay_service.raw_client import row
from tests.relay_service.relay_fixture import PROJECTION, keys_of, ref, with_device

# Signed by the control plane of the reference: its statement and signature are known there.
VECTOR = job_pb2.SignedGrant(
    grant_id="grant_1",
    job_id="job_1",
    site="BYOLLM-6HTG-Z65X-B7YF-S53D-MHDA-NFMK",
    user="alice",
    owner="alice",
    purpose="writing",
    kind="llm.generate",
    service="qwen",
    issue_time=Timestamp(seconds=1_767_225_600),
    signature=bytes.fromhex(
        "e8a3ab55b57cdf04b35328e220791eb8a329b941beee19b25b053eb70665099c"
        "d79592c3738d5266b8873ed537a459fb9862e6cb854c91fdf00044565a63330d"
    ),
)


async def test_the_question_says_who_won_what(asked: PolicyRelay) -> None:
    await asked.relay.enqueue("job-1", purpose="writing")
    await asked.relay.daemon("runner-b").connect()
    await asked.policy.asked()
    (question,) = asked.policy.grants
    assert question.site_id == "demo"
    assert question.stub == asked.relay.stub("job-1", purpose="writing")
    assert (question.device_owner, question.runner_id, question.lease_id) == ("bob", "runner-b", "lease-1")
    assert list(question.matrix) == [row()]


async def test_the_grant_is_carried_byte_for_byte(asked: PolicyRelay) -> None:
    asked.policy.decide = lambda _: Answer(grant=VECTOR)
    stream = await asked.relay.daemon().connect()
    await asked.relay.enqueue("job-1")
    granted = await stream.next("granted")
    assert granted.grant.SerializeToString() == VECTOR.SerializeToString()
    await asked.relay.enqueue("job-2")
    answer = await asked.relay.daemon("runner-2").call("ClaimJobs", claim())
    assert answer.granted[0].grant.SerializeToString() == VECTOR.SerializeToString()
    accepted = verify_grant(
        granted.grant,
        control_plane=decode_base64url("bnoc3Smwt4_ROvTFWY_v9O8qlxZuPKby5Pv8zYBQW_E"),
        owner="alice",
        job_id="job_1",
        now_ms=1_767_225_600_000,
    )
    assert isinstance(accepted, Grant)


async def test_nobody_hears_of_a_grant_while_the_policy_is_asked(asked: PolicyRelay) -> None:
    relay = asked.relay
    site, device = await relay.site().connect(), await relay.daemon().connect()
    asked.policy.gate.clear()
    await relay.enqueue("job-1")
    await asked.policy.asked()
    await site.settle()
    await device.settle()
    assert not site.take("notice")
    assert not device.take("granted")
    job = await relay.site().call("GetJob", site_plane_pb2.GetJobRequest(job_id="job-1"))
    assert (job.state, job.lease_id) == (job_pb2.JOB_STATE_QUEUED, "")
    repeat = await relay.site().call("EnqueueJob", site_plane_pb2.EnqueueJobRequest(stub=relay.stub("job-1")))
    assert repeat.state == job_pb2.JOB_STATE_QUEUED
    asked.policy.gate.set()
    granted = await device.next("granted")
    notice = await site.next("notice")
    assert notice.please_seal.lease_id == granted.lease.id


async def test_it_counts_as_queued_for_the_operator_too(asked: PolicyRelay) -> None:
    asked.policy.gate.clear()
    await asked.relay.enqueue("job-1")
    await asked.relay.daemon().connect()
    await asked.policy.asked()
    answer = await asked.relay.operator().call("GetStats", admin_pb2.GetStatsRequest())
    assert (answer.stats.queued_jobs, answer.stats.awaiting_jobs) == (1, 0)
    jobs = await asked.relay.operator().call("ListJobs", admin_pb2.ListJobsRequest())
    assert [job.state for job in jobs.jobs] == [job_pb2.JOB_STATE_QUEUED]


async def test_the_policy_takes_nothing_of_the_sites_time(asked: PolicyRelay) -> None:
    relay = asked.relay
    site, device = await relay.site().connect(), await relay.daemon().connect()
    asked.policy.gate.clear()
    await relay.enqueue("job-1")
    await asked.policy.asked()
    await relay.pass_time(4_000, alive=[site, device])
    asked.policy.gate.set()
    granted = await device.next("granted")
    notice = await site.next("notice")
    now_ms = relay.clock.now_ms()
    assert notice.please_seal.seal_by_time.ToMilliseconds() == now_ms + 10_000
    assert granted.lease.expire_time.ToMilliseconds() == now_ms + 60_000
    await device.send(grant_ack=daemon_plane_pb2.GrantAck(leases=[ref(granted)]))
    await relay.pass_time(9_000, alive=[site, device])
    await relay.seal(ref(granted))
    await device.next("payload_ready")


async def test_a_device_hears_of_its_grant_before_the_payload(asked: PolicyRelay) -> None:
    relay = asked.relay
    device = await relay.daemon().connect(limit=8)
    site = await relay.site().connect()
    for number in range(8):
        await relay.enqueue(f"job-{number}")
    for _ in range(8):
        notice = await site.next("notice")
        await relay.seal(job_pb2.LeaseRef(job_id=notice.job_id, lease_id=notice.please_seal.lease_id))
        await device.next("payload_ready")
    arms = [item.WhichOneof("item") for frame in device.frames for item in frame.items]
    news = [arm for arm in arms if arm in {"granted", "payload_ready"}]
    balance = 0
    for arm in news:
        balance += 1 if arm == "granted" else -1
        assert balance >= 0


async def test_declined_for_ever_is_never_offered_to_that_device_again(asked: PolicyRelay) -> None:
    relay = asked.relay
    asked.policy.decide = never
    first = await relay.daemon("runner-1").connect(limit=4)
    await relay.enqueue("job-1")
    await asked.policy.asked()
    await relay.becomes("job-1", "queued")
    await relay.pass_time(60_000, alive=[first])
    assert len(asked.policy.grants) == 1
    second = await relay.daemon("runner-2").connect()
    await asked.policy.asked(2)
    assert asked.policy.grants[1].runner_id == "runner-2"
    await first.settle()
    await second.settle()
    assert not first.take("granted")
    assert not second.take("granted")
    # The site was told of nothing, so it is told of no return either.
    assert list(await relay.store.notices("demo", 0, 100)) == []


async def test_declined_for_now_is_asked_again_after_thirty_seconds(asked: PolicyRelay) -> None:
    relay = asked.relay
    asked.policy.decide = not_now
    stream = await relay.daemon().connect()
    await relay.enqueue("job-1")
    await asked.policy.asked()
    await relay.becomes("job-1", "queued")
    await relay.pass_time(29_500, alive=[stream])
    assert len(asked.policy.grants) == 1
    asked.policy.decide = lambda request: Answer(grant=grant_for(request))
    await relay.pass_time(1_000, alive=[stream])
    assert (await stream.next("granted")).stub.id == "job-1"


async def test_declined_for_now_goes_to_another_device_at_once(asked: PolicyRelay) -> None:
    relay = asked.relay
    asked.policy.decide = lambda request: (
        not_now(request) if request.runner_id == "runner-1" else Answer(grant=grant_for(request))
    )
    first = await relay.daemon("runner-1").connect()
    await relay.enqueue("job-1")
    await asked.policy.asked()
    second = await relay.daemon("runner-2").connect()
    assert (await second.next("granted")).stub.id == "job-1"
    await first.settle()
    assert not first.take("granted")


async def test_a_device_that_is_declined_one_job_is_asked_about_the_next(asked: PolicyRelay) -> None:
    asked.policy.decide = lambda request: (
        never(request) if request.stub.id == "job-1" else Answer(grant=grant_for(request))
    )
    await asked.relay.enqueue("job-1", "job-2")
    stream = await asked.relay.daemon().connect(limit=1)
    assert (await stream.next("granted")).stub.id == "job-2"


async def test_a_policy_that_is_away_returns_the_job(asked: PolicyRelay) -> None:
    relay = asked.relay
    await relay.enqueue("job-1")
    await asked.policy.stop()
    stream = await relay.daemon("runner-1").connect()

    async def returned() -> bool:
        job = await relay.store.job("demo", "job-1")
        return job is not None and [runner for runner, _ in job.retry_after_ms] == ["runner-1"]

    await eventually(returned)
    await asked.start_policy()
    other = await relay.daemon("runner-2").connect()
    assert (await other.next("granted")).stub.id == "job-1"
    await stream.settle()
    assert not stream.take("granted")


async def test_a_policy_that_is_killed_while_it_is_asked_returns_the_job(asked: PolicyRelay) -> None:
    relay = asked.relay
    asked.policy.gate.clear()
    stream = await relay.daemon().connect()
    await relay.enqueue("job-1")
    await asked.policy.asked()
    await asked.policy.stop()
    await relay.becomes("job-1", "queued")
    await asked.start_policy()
    await relay.pass_time(29_000, alive=[stream])
    assert not stream.take("granted")
    await relay.pass_time(1_500, alive=[stream])
    assert (await stream.next("granted")).stub.id == "job-1"


async def test_a_slow_policy_holds_nobody_else_up(asked: PolicyRelay) -> None:
    relay = asked.relay
    device = await relay.daemon("runner-1").connect(limit=4)
    bob = await relay.daemon("runner-b").connect(limit=4)
    await relay.enqueue("held", audience=job_pb2.AUDIENCE_PRIVATE)
    held = await device.next("granted")
    slow = asyncio.Event()

    async def wait_for(request: Any) -> None:
        if request.stub.owner == "alice":
            await slow.wait()

    original = asked.policy.AuthorGrant

    async def author(request: Any, context: Any) -> Answer:
        await wait_for(request)
        return await original(request, context)

    asked.policy.AuthorGrant = author  # type: ignore[method-assign]
    await asked.policy.stop()
    await asked.start_policy()
    await relay.enqueue("slow", audience=job_pb2.AUDIENCE_PRIVATE)
    await relay.becomes("slow", "authorising")
    await relay.enqueue("quick", owner="bob", audience=job_pb2.AUDIENCE_PRIVATE)
    assert (await bob.next("granted")).stub.id == "quick"
    await relay.cancel("held")
    verdicts = await device.next("verdicts")
    while not verdicts.verdicts:
        verdicts = await device.next("verdicts")
    assert verdicts.verdicts[0].lease == ref(held)
    slow.set()


async def test_credit_is_counted_while_the_policy_is_asked(asked: PolicyRelay) -> None:
    relay = asked.relay
    asked.policy.gate.clear()
    stream = await relay.daemon().connect(limit=1)
    await relay.enqueue("job-1", "job-2")
    await asked.policy.asked()
    await stream.send(credit=session_pb2.Credit(limit=1))
    await stream.settle()
    assert len(asked.policy.grants) == 1
    await stream.send(credit=session_pb2.Credit(limit=2))
    await asked.policy.asked(2)
    asked.policy.gate.set()
    assert {(await stream.next("granted")).stub.id for _ in range(2)} == {"job-1", "job-2"}


async def test_the_jobs_of_one_claim_are_asked_about_together(asked: PolicyRelay) -> None:
    asked.policy.gate.clear()
    await asked.relay.enqueue("job-1", "job-2")
    await asked.relay.daemon().connect(limit=2)
    await asked.policy.asked(2)
    assert {question.stub.id for question in asked.policy.grants} == {"job-1", "job-2"}


# -- what changes meanwhile -------------------------------------------------------------


async def waiting(asked: PolicyRelay, **hello: Any) -> Any:
    """A stream whose grant of job-1 the policy has not answered yet."""
    asked.policy.gate.clear()
    await asked.relay.enqueue("job-1")
    stream = await asked.relay.daemon().connect(**hello)
    await asked.policy.asked()
    return stream


async def goes_back_unmarked(asked: PolicyRelay, stream: Any) -> None:
    asked.policy.gate.set()
    await asked.relay.becomes("job-1", "queued")
    job = await asked.relay.store.job("demo", "job-1")
    assert job is not None
    assert (job.refused_by, job.retry_after_ms, job.seal_attempts) == ((), (), 0)
    assert not stream.take("granted")
    assert list(await asked.relay.store.notices("demo", 0, 100)) == []


async def test_a_device_that_is_revoked_meanwhile_gets_nothing(asked: PolicyRelay) -> None:
    stream = await waiting(asked)
    device = ProjectedDevice("alice", "runner-1", keys_of("runner-1").public, revoked=True)
    asked.relay.source.replace(with_device(device))
    await stream.end()
    await goes_back_unmarked(asked, stream)


async def test_a_consent_that_ends_meanwhile_counts(asked: PolicyRelay) -> None:
    stream = await waiting(asked)
    asked.relay.source.replace(replace(PROJECTION, consents=(Consent("bob", "demo"),)))
    await goes_back_unmarked(asked, stream)


async def test_a_stream_that_ends_meanwhile_gets_nothing(asked: PolicyRelay) -> None:
    stream = await waiting(asked)
    await stream.send(goodbye=session_pb2.Goodbye())
    await stream.end()
    await goes_back_unmarked(asked, stream)


async def test_a_device_that_drains_meanwhile_gets_nothing(asked: PolicyRelay) -> None:
    stream = await waiting(asked)
    await stream.send(draining=daemon_plane_pb2.Draining())
    await stream.settle()
    await goes_back_unmarked(asked, stream)


async def test_a_kind_that_is_withdrawn_meanwhile_is_not_granted(asked: PolicyRelay) -> None:
    stream = await waiting(asked)
    await stream.send(capabilities_changed=daemon_plane_pb2.CapabilitiesChanged())
    await stream.settle()
    await goes_back_unmarked(asked, stream)


async def test_a_job_that_is_cancelled_meanwhile_is_gone(asked: PolicyRelay) -> None:
    stream = await waiting(asked)
    assert await asked.relay.cancel("job-1")
    asked.policy.gate.set()
    await asked.relay.enqueue("job-2")
    # Its credit was given back.
    assert (await stream.next("granted")).stub.id == "job-2"
