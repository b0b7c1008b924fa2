"""Rows of a site's inbox on its streams: each until it is settled, on one stream at a time."""

import grpc

from relay_service.planes.convert import stub_from_proto
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from sealwork.session.v1 import session_pb2
from service_common.sessions.limits import SessionTimes
from tests.relay_service.raw_client import RawStream
from tests.relay_service.relay_fixture import START_MS, RelayUnderTest, Serve, keys_of, ref

Ack = site_plane_pb2.AckResultsRequest


async def ended_jobs(relay: RelayUnderTest, *job_ids: str) -> None:
    """Jobs that were withdrawn before anyone held them: each is one row of the inbox."""
    await relay.enqueue(*job_ids)
    for job_id in job_ids:
        await relay.cancel(job_id)


async def jobs_of(stream: RawStream, count: int) -> list[str]:
    return [(await stream.next("notice")).job_id for _ in range(count)]


async def test_the_course_of_a_job_as_its_site_hears_it(relay: RelayUnderTest) -> None:
    site, daemon = await relay.site().connect(), await relay.daemon().connect(limit=5)
    await relay.enqueue("job-1")
    first = await site.next("notice")
    assert (first.job_id, first.delivery_attempt) == ("job-1", 1)
    assert first.create_time.ToMilliseconds() == START_MS
    seal = first.please_seal
    lease = ref(await daemon.next("granted"))
    assert (seal.lease_id, seal.runner_id) == (lease.lease_id, "runner-1")
    public = keys_of("runner-1").public
    device = (seal.device.identity, seal.device.encryption, seal.device.encryption_signature)
    assert device == (public.identity, public.encryption, public.encryption_signature)
    assert seal.seal_within.ToMilliseconds() == 10_000
    assert seal.seal_by_time.ToMilliseconds() == START_MS + 10_000

    back = daemon_plane_pb2.ReleaseLeasesRequest(leases=[lease], reason=daemon_plane_pb2.RELEASE_REASON_PAUSE)
    await relay.daemon().call("ReleaseLeases", back)
    requeued = await site.next("notice")
    assert requeued.job_requeued.reason == site_plane_pb2.REQUEUE_REASON_RELEASED
    assert requeued.job_requeued.count == 1

    again = await site.next("notice")
    second = ref(await daemon.next("granted"))
    assert again.please_seal.lease_id == second.lease_id != lease.lease_id
    done = daemon_plane_pb2.CompleteJobRequest(
        lease=second,
        envelope=relay.result(),
        disposition=job_pb2.DISPOSITION_OK,
    )
    await relay.daemon().call("CompleteJob", done)
    ready = await site.next("notice")
    assert ready.result_ready.disposition == job_pb2.DISPOSITION_OK
    sequences = [first.sequence, requeued.sequence, again.sequence, ready.sequence]
    assert sequences == sorted(set(sequences))
    await relay.site().call("AckResults", Ack(job_ids=["job-1"]))
    assert list(await relay.store.notices("demo", 0, 9)) == []


async def test_the_end_of_a_job_without_a_result(relay: RelayUnderTest) -> None:
    site = await relay.site().connect()
    await ended_jobs(relay, "job-1")
    notice = await site.next("notice")
    assert notice.job_ended.reason == site_plane_pb2.JOB_END_REASON_CANCELLED


async def test_what_waits_comes_with_the_hello_in_order(relay: RelayUnderTest) -> None:
    await ended_jobs(relay, "job-1", "job-2", "job-3")
    site = await relay.site().connect()
    assert await jobs_of(site, 3) == ["job-1", "job-2", "job-3"]


async def test_no_more_notices_than_credit(relay: RelayUnderTest) -> None:
    await ended_jobs(relay, "job-1", "job-2", "job-3")
    site = await relay.site().connect(limit=1)
    assert await jobs_of(site, 1) == ["job-1"]
    await site.settle()
    assert not site.take("notice")
    await site.send(credit=session_pb2.Credit(limit=3))
    assert await jobs_of(site, 2) == ["job-2", "job-3"]


async def test_each_site_hears_of_its_own_jobs_alone(relay: RelayUnderTest) -> None:
    other = await relay.site("other").connect()
    await ended_jobs(relay, "job-1")
    await other.settle()
    assert not other.take("notice")


async def test_a_notice_goes_to_one_of_a_sites_streams(relay: RelayUnderTest) -> None:
    streams = [await relay.site().connect(process_id=f"process-{number}") for number in range(2)]
    names = [f"job-{number}" for number in range(6)]
    await ended_jobs(relay, *names)
    for stream in streams:
        await stream.settle()
    heard = [[notice.job_id for notice in stream.take("notice")] for stream in streams]
    assert sorted(heard[0] + heard[1]) == names
    # Load spreads: the stream with the most credit is next.
    assert [len(jobs) for jobs in heard] == [3, 3]


async def test_what_a_lost_stream_was_sent_goes_to_another(relay: RelayUnderTest) -> None:
    first = await relay.site().connect()
    await ended_jobs(relay, "job-1", "job-2", "job-3")
    rows = [await first.next("notice") for _ in range(3)]
    second = await relay.site().connect(process_id="process-2")
    await relay.site().call("AckResults", Ack(notice_ids=[rows[1].notice_id]))
    await second.settle()
    assert not second.take("notice")
    first.call.cancel()
    again = [await second.next("notice") for _ in range(2)]
    assert [row.notice_id for row in again] == [rows[0].notice_id, rows[2].notice_id]
    assert [row.delivery_attempt for row in again] == [2, 2]


async def test_after_a_lost_stream_later_rows_still_come(relay: RelayUnderTest) -> None:
    """And with little credit, the older ones first."""
    first = await relay.site().connect()
    await ended_jobs(relay, "job-1", "job-2")
    await jobs_of(first, 2)
    second = await relay.site().connect(process_id="process-2", limit=1)
    first.call.cancel()
    await relay.ended("site", "lost")
    await ended_jobs(relay, "job-3")
    heard = await jobs_of(second, 1)
    for credit in (2, 3):
        await second.send(credit=session_pb2.Credit(limit=credit))
        heard += await jobs_of(second, 1)
    assert heard == ["job-1", "job-2", "job-3"]


async def test_what_stays_unsettled_is_sent_again_after_half_a_minute(relay: RelayUnderTest) -> None:
    site = await relay.site().connect()
    await ended_jobs(relay, "job-1", "job-2")
    rows = [await site.next("notice") for _ in range(2)]
    await relay.site().call("AckResults", Ack(job_ids=["job-1"]))
    await relay.pass_time(29_999, alive=[site])
    assert not site.take("notice")
    await relay.pass_time(5_001, alive=[site])
    again = await relay.told(site, "notice")
    assert (again.notice_id, again.delivery_attempt) == (rows[1].notice_id, 2)
    assert not site.take("notice")
    await relay.pass_time(35_000, alive=[site])
    once_more = await relay.told(site, "notice")
    assert (once_more.notice_id, once_more.delivery_attempt) == (again.notice_id, 3)
    assert not site.take("notice")


async def test_naming_the_wrong_id_settles_nothing(relay: RelayUnderTest) -> None:
    """A result is settled by its job id; its notice id does not do, and it is sent again."""
    site, daemon = await relay.site().connect(), await relay.daemon().connect(limit=1)
    await relay.enqueue("job-1")
    await site.next("notice")
    done = daemon_plane_pb2.CompleteJobRequest(
        lease=ref(await daemon.next("granted")),
        envelope=relay.result(),
        disposition=job_pb2.DISPOSITION_OK,
    )
    await relay.daemon().call("CompleteJob", done)
    row = await site.next("notice")
    answer = await relay.site().call("AckResults", Ack(notice_ids=[row.notice_id]))
    assert not answer.settled_ids
    await relay.pass_time(35_000, alive=[site])
    assert (await relay.told(site, "notice")).notice_id == row.notice_id
    assert not site.take("notice")


async def test_a_request_to_seal_that_was_met_is_not_repeated(relay: RelayUnderTest) -> None:
    site, daemon = await relay.site().connect(), await relay.daemon().connect(limit=1)
    await relay.enqueue("job-1")
    await site.next("notice")
    await relay.seal(ref(await daemon.next("granted")))
    site.call.cancel()
    await relay.ended("site", "lost")
    site = await relay.site().connect()
    await site.settle()
    assert not site.take("notice")


async def test_notices_that_do_not_fit_are_reported_and_sent_when_there_is_room(serve: Serve) -> None:
    """Nothing more has to happen for them to come: no new notice, no credit, no time."""
    async with serve(SessionTimes(queued_notices=4)) as relay:
        names = [f"job-{number:02}" for number in range(50)]
        await ended_jobs(relay, *names)
        site = await relay.site().connect()
        resync = await site.next("resync_required")
        assert resync.reason == session_pb2.RESYNC_REASON_NOTICES_DROPPED
        assert await jobs_of(site, 50) == names
        await site.settle()
        # One request says as much as many.
        assert not site.take("resync_required")


async def test_a_seventeenth_stream_of_a_site_is_refused(relay: RelayUnderTest) -> None:
    streams = [await relay.site().connect() for _ in range(16)]
    late = relay.site().open()
    await relay.site().greet(late)
    refusal = await late.end()
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_SESSIONS")
    assert refusal.retry_after_ms == 10_000
    assert relay.open_streams("site") == 16
    await (await relay.site("other").connect()).settle()
    await streams[0].send(goodbye=session_pb2.Goodbye())
    assert await streams[0].end() is None
    await (await relay.site().connect()).settle()


async def test_thousands_of_rows_are_sent_once_each(relay: RelayUnderTest) -> None:
    for number in range(1_500):
        await relay.store.enqueue("demo", stub_from_proto(relay.stub(f"job-{number}")))
        await relay.store.cancel("demo", f"job-{number}")
    site = await relay.site().connect(limit=5_000)
    heard = await jobs_of(site, 1_500)
    assert heard == [f"job-{number}" for number in range(1_500)]
    second = await relay.site().connect(process_id="process-2", limit=5_000)
    site.call.cancel()
    assert await jobs_of(second, 1_500) == heard
    await second.settle()
    assert not second.take("notice")
