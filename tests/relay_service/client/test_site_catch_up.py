"""A job that is published once more must not be forgotten by the relay in between: it would run twice."""

import asyncio
from typing import Any

from relay_service.client import GeneratePayload
from sealwork.relay.v1 import job_pb2, site_plane_pb2
from sealwork.session.v1 import session_pb2
from tests.harness.waiting import eventually
from tests.relay_service.client.scripted_site import (
    SERVICE,
    PlayedRelay,
    played_relay,
    please_seal,
    result_ready,
)

HELLO = GeneratePayload("hello")
RESYNC = site_plane_pb2.SiteServerItem(resync_required=session_pb2.ResyncRequired())


async def sealed_job(relay: PlayedRelay, job_id: str) -> Any:
    job = await relay.publish(HELLO, job_id=job_id)
    await relay.notify(f"seal-{job_id}", job_id, please_seal=please_seal())
    assert (await relay.sealed()).job_id == job_id
    return job


async def published_again(relay: PlayedRelay) -> site_plane_pb2.SiteCall:
    """The call by which jobs are published once more, unanswered."""
    empty = site_plane_pb2.ListNoticesResponse()
    relay.server.unary[SERVICE + "ListNotices"] = lambda _: empty.SerializeToString()
    await relay.stream.send(RESYNC)
    call = await relay.call()
    assert call.WhichOneof("request") == "enqueue_jobs"
    return call


async def confirm(relay: PlayedRelay, call: site_plane_pb2.SiteCall) -> None:
    answer = site_plane_pb2.EnqueueJobsResponse()
    for stub in call.enqueue_jobs.stubs:
        known = site_plane_pb2.EnqueueJobResponse(job_id=stub.id, state=job_pb2.JOB_STATE_DONE)
        answer.results.add(enqueued=known)
    await relay.reply(call, enqueue_jobs=answer)


async def test_nothing_is_settled_while_its_enqueue_is_under_way() -> None:
    async with played_relay() as relay:
        job = await sealed_job(relay, "j-1")
        again = await published_again(relay)
        await relay.notify("n-2", "j-1", result_ready=result_ready("j-1"))
        assert (await job.result(5)).text == "an answer"
        # The notice comes again before the relay has heard, and another job is published.
        await relay.notify("n-2", "j-1", result_ready=result_ready("j-1"))
        await relay.publish(HELLO, job_id="j-2")
        assert [call.WhichOneof("request") for call in relay.stream.items("call")][-1] == "enqueue_job"
        await confirm(relay, again)
        assert list((await relay.call()).ack_results.job_ids) == ["j-1"]


async def test_closing_waits_for_what_was_held_back() -> None:
    async with played_relay() as relay:
        job = await sealed_job(relay, "j-1")
        again = await published_again(relay)
        await relay.notify("n-2", "j-1", result_ready=result_ready("j-1"))
        await job.result(5)
        closing = asyncio.create_task(relay.site.close())
        await confirm(relay, again)
        settling = await relay.call()
        assert list(settling.ack_results.job_ids) == ["j-1"]
        await relay.reply(settling, ack_results=site_plane_pb2.AckResultsResponse(settled_ids=["j-1"]))
        await eventually(lambda: relay.stream.items("goodbye"))
        relay.stream.over.set()
        await closing


async def test_a_job_that_ends_while_others_are_published_again_is_not() -> None:
    async with played_relay() as relay:
        for number in range(100):
            await relay.publish(HELLO, job_id=f"other-{number}")
        jobs = [await sealed_job(relay, "j-1"), await sealed_job(relay, "j-2")]
        first = await published_again(relay)
        assert len(first.enqueue_jobs.stubs) == 100
        await relay.notify("n-2", "j-1", result_ready=result_ready("j-1"))
        await jobs[0].result(5)
        assert list((await relay.call()).ack_results.job_ids) == ["j-1"]
        await confirm(relay, first)
        second = await relay.call()
        assert [stub.id for stub in second.enqueue_jobs.stubs] == ["j-2"]


async def test_what_is_missed_while_catching_up_is_caught_up_with_too() -> None:
    async with played_relay() as relay:
        await relay.publish(HELLO, job_id="j-1")
        first = await published_again(relay)
        await relay.stream.send(RESYNC)
        await confirm(relay, first)
        second = await relay.call()
        assert [stub.id for stub in second.enqueue_jobs.stubs] == ["j-1"]
        assert len(relay.server.seen("ListNotices")) == 2
