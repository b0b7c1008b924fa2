"""Leases on a stream: renewals, cancels, losses. Losing the stream loses none of them."""

from typing import Any

import pytest

from relay_service.core.model import JobEnd, NoticeKind
from relay_service.core.model import LeaseRef as CoreLeaseRef
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from tests.relay_service.raw_client import RawStream
from tests.relay_service.relay_fixture import RelayUnderTest, ref

ACTIVE, CANCEL_REQUESTED = job_pb2.LEASE_STATE_ACTIVE, job_pb2.LEASE_STATE_CANCEL_REQUESTED
LOST, COMPLETED = job_pb2.LEASE_STATE_LOST, job_pb2.LEASE_STATE_COMPLETED
LeaseRef = job_pb2.LeaseRef


async def holding(relay: RelayUnderTest, *job_ids: str, sealed: bool = True) -> tuple[RawStream, list[Any]]:
    """A device that holds these jobs, acknowledged and sealed to it."""
    stream = await relay.daemon().connect(limit=len(job_ids))
    await stream.next("verdicts")
    leases = []
    for job_id in job_ids:
        await relay.enqueue(job_id)
        leases.append(ref(await stream.next("granted")))
        if sealed:
            await relay.seal(leases[-1])
            await stream.next("payload_ready")
    if leases:
        await stream.send(grant_ack=daemon_plane_pb2.GrantAck(leases=leases))
    await stream.settle()
    return stream, leases


async def renew(stream: RawStream, leases: list[Any], renewal_id: int = 7) -> Any:
    await stream.send(renew=daemon_plane_pb2.Renew(renewal_id=renewal_id, leases=leases))
    verdicts = await stream.next("verdicts")
    assert verdicts.renewal_id == renewal_id
    assert verdicts.renewed_for.ToMilliseconds() == 60_000
    return verdicts.verdicts


async def test_a_renewal_is_answered_with_its_exceptions_alone(relay: RelayUnderTest) -> None:
    stream, leases = await holding(relay, "job-1", "job-2")
    stranger = LeaseRef(job_id="job-3", lease_id="no-such-lease")
    (verdict,) = await renew(stream, [*leases, stranger])
    assert (verdict.lease, verdict.state) == (stranger, LOST)
    assert not verdict.HasField("remaining")
    assert not await renew(stream, leases)


async def test_a_renewed_lease_lasts_from_the_renewal_on(relay: RelayUnderTest) -> None:
    stream, (lease,) = await holding(relay, "job-1")
    await relay.pass_time(50_000, alive=[stream])
    assert not await renew(stream, [lease])
    await relay.pass_time(59_999, alive=[stream])
    assert await relay.state("job-1") == "ready"
    await relay.clock.advance_async(1)
    await relay.becomes("job-1", "queued")
    (verdict,) = (await stream.next("verdicts")).verdicts
    assert (verdict.lease, verdict.state) == (lease, LOST)
    assert verdict.end_reason == job_pb2.LEASE_END_REASON_EXPIRED
    (verdict,) = await renew(stream, [lease])
    assert (verdict.state, verdict.end_reason) == (LOST, job_pb2.LEASE_END_REASON_EXPIRED)


async def test_a_lease_whose_site_does_not_seal_is_lost_at_the_end_of_the_window(
    relay: RelayUnderTest,
) -> None:
    stream, (lease,) = await holding(relay, "job-1", sealed=False)
    await relay.pass_time(10_000, alive=[stream])
    (verdict,) = (await relay.told(stream, "verdicts")).verdicts
    assert (verdict.lease, verdict.state) == (lease, LOST)
    assert verdict.end_reason == job_pb2.LEASE_END_REASON_WINDOW_LAPSED


async def test_a_lease_survives_its_stream(relay: RelayUnderTest) -> None:
    stream, (lease,) = await holding(relay, "job-1")
    stream.call.cancel()
    await relay.ended("daemon", "lost")
    await relay.clock.advance_async(59_999)
    assert await relay.state("job-1") == "ready"
    answer = await relay.daemon().call("RenewLeases", daemon_plane_pb2.RenewLeasesRequest(leases=[lease]))
    assert [verdict.state for verdict in answer.verdicts] == [ACTIVE]


async def test_a_finished_lease_is_not_renewed(relay: RelayUnderTest) -> None:
    stream, (lease,) = await holding(relay, "job-1")
    done = daemon_plane_pb2.CompleteJobRequest(
        lease=lease, envelope=relay.result(), disposition=job_pb2.DISPOSITION_OK
    )
    await stream.send(call=daemon_plane_pb2.DaemonCall(id=1, complete_job=done))
    assert (await stream.next("reply")).complete_job.accepted
    assert [verdict.state for verdict in await renew(stream, [lease])] == [COMPLETED]


@pytest.mark.parametrize("count", [0, 501])
async def test_a_renewal_of_none_or_too_many_is_a_bad_item(relay: RelayUnderTest, count: int) -> None:
    stream, _ = await holding(relay)
    leases = [LeaseRef(job_id="j", lease_id=str(number)) for number in range(count)]
    await stream.send(renew=daemon_plane_pb2.Renew(renewal_id=1, leases=leases))
    await stream.next("frame_error")
    await stream.settle()
    assert not stream.take("verdicts")


async def test_an_answer_that_does_not_fit_a_frame_is_left_to_the_unary_call(relay: RelayUnderTest) -> None:
    stream, _ = await holding(relay)
    leases = [LeaseRef(job_id="j" * 120, lease_id=f"{number:0100}") for number in range(288)]
    await stream.send(renew=daemon_plane_pb2.Renew(renewal_id=1, leases=leases))
    assert "BODY_TOO_LARGE_FOR_SESSION" in str((await stream.next("frame_error")).status)
    assert max(frame.ByteSize() for frame in stream.frames) <= 65_536


# -- cancels ------------------------------------------------------------------------------


async def test_a_cancel_is_pushed_at_once(relay: RelayUnderTest) -> None:
    stream, (lease, _) = await holding(relay, "job-1", "job-2")
    assert await relay.cancel("job-1")
    verdicts = await stream.next("verdicts")
    assert verdicts.renewal_id == 0
    (verdict,) = verdicts.verdicts
    assert (verdict.lease, verdict.state) == (lease, CANCEL_REQUESTED)


async def test_a_cancel_is_repeated_with_every_renewal(relay: RelayUnderTest) -> None:
    """Also after it was acknowledged: the state of the lease is what it is."""
    stream, leases = await holding(relay, "job-1", "job-2")
    await relay.cancel("job-1")
    await stream.next("verdicts")
    for _ in range(2):
        (verdict,) = await renew(stream, leases)
        assert (verdict.lease, verdict.state) == (leases[0], CANCEL_REQUESTED)
        assert verdict.remaining.ToMilliseconds() == 60_000


async def test_a_cancel_is_repeated_to_the_next_stream(relay: RelayUnderTest) -> None:
    stream, (lease,) = await holding(relay, "job-1")
    stream.call.cancel()
    await relay.ended("daemon", "lost")
    await relay.cancel("job-1")
    stream = await relay.daemon().connect(inventory={"leases": [lease]})
    (verdict,) = (await stream.next("verdicts")).verdicts
    assert (verdict.lease, verdict.state) == (lease, CANCEL_REQUESTED)


async def test_an_acknowledged_cancel_is_asked_for_no_more(relay: RelayUnderTest) -> None:
    stream, (lease,) = await holding(relay, "job-1")
    await relay.cancel("job-1")
    await stream.next("verdicts")
    assert await relay.store.cancel_requests("runner-1") == [CoreLeaseRef(lease.job_id, lease.lease_id)]
    await stream.send(cancel_ack=daemon_plane_pb2.CancelAck(leases=[lease]))
    await stream.settle()
    assert await relay.store.cancel_requests("runner-1") == []


async def test_a_cancelled_job_may_be_reported_or_given_back(relay: RelayUnderTest) -> None:
    stream, (reported, released) = await holding(relay, "job-1", "job-2")
    await relay.cancel("job-1")
    await relay.cancel("job-2")
    done = daemon_plane_pb2.CompleteJobRequest(
        lease=reported, envelope=relay.result(), disposition=job_pb2.DISPOSITION_CANCELED
    )
    back = daemon_plane_pb2.ReleaseLeasesRequest(
        leases=[released], reason=daemon_plane_pb2.RELEASE_REASON_SHUTDOWN
    )
    await stream.send_items(
        stream.item(call=daemon_plane_pb2.DaemonCall(id=1, complete_job=done)),
        stream.item(call=daemon_plane_pb2.DaemonCall(id=2, release_leases=back)),
    )
    replies = {reply.id: reply for reply in [await stream.next("reply") for _ in range(2)]}
    assert replies[1].complete_job.accepted
    assert list(replies[2].release_leases.job_ids) == ["job-2"]
    assert await relay.state("job-1") == "done"
    await relay.becomes("job-2", None)
    ends = [row.end for row in await relay.store.notices("demo", 0, 9) if row.kind is NoticeKind.JOB_ENDED]
    assert ends == [JobEnd.CANCELLED]
