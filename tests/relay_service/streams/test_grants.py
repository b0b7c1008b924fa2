"""Credit is a standing claim: grants pushed, acknowledged, and taken back."""

import pytest

from relay_service.core.model import NoticeKind, RequeueCause
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from sealwork.session.v1 import session_pb2
from service_common.sessions.limits import SessionTimes
from tests.harness.waiting import eventually
from tests.relay_service.raw_client import row
from tests.relay_service.relay_fixture import START_MS, RelayUnderTest, Serve, ref

ACK = daemon_plane_pb2.GrantAck


async def test_a_job_that_waits_is_granted_with_the_hello(relay: RelayUnderTest) -> None:
    await relay.enqueue("job-1")
    stream = await relay.daemon().connect(limit=1)
    granted = await stream.next("granted")
    assert granted.stub == relay.stub("job-1")
    assert ref(granted) == await relay.lease_of("job-1")
    assert granted.lease.remaining.ToMilliseconds() == 60_000
    assert granted.lease.expire_time.ToMilliseconds() == START_MS + 60_000
    assert not granted.HasField("grant")


async def test_a_new_job_is_pushed_to_a_device_that_waits(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(limit=1)
    await stream.settle()
    await relay.enqueue("job-1")
    assert (await stream.next("granted")).stub.id == "job-1"
    assert await relay.state("job-1") == "awaiting-payload"


async def test_no_more_grants_than_credit(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(limit=1)
    await relay.enqueue("job-1", "job-2")
    await stream.next("granted")
    await stream.settle()
    assert not stream.take("granted")
    await stream.send(credit=session_pb2.Credit(limit=2))
    assert (await stream.next("granted")).stub.id == "job-2"


async def test_credit_never_goes_down(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(limit=2)
    await stream.send(credit=session_pb2.Credit(limit=1))
    await stream.send(credit=session_pb2.Credit(limit=0))
    await stream.settle()
    await relay.enqueue("job-1", "job-2")
    assert {(await stream.next("granted")).stub.id for _ in range(2)} == {"job-1", "job-2"}


async def test_a_new_stream_starts_at_its_own_credit(relay: RelayUnderTest) -> None:
    await relay.daemon().connect(limit=5)
    stream = await relay.daemon().connect(limit=0)
    await stream.settle()
    await relay.enqueue("job-1")
    await stream.settle()
    assert not stream.take("granted")


async def test_credit_too_far_ahead_is_a_bad_item(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(limit=0)
    await stream.send(credit=session_pb2.Credit(limit=1_000_001))
    assert (await stream.next("frame_error")).frame_seq == 2
    await stream.send(credit=session_pb2.Credit(limit=1_000_000))
    await stream.settle()
    assert not stream.take("frame_error")


async def test_a_job_goes_to_one_of_several_devices(relay: RelayUnderTest) -> None:
    streams = [await relay.daemon(name).connect(limit=4) for name in ("runner-1", "runner-2", "runner-b")]
    for stream in streams:
        await stream.settle()
    await relay.enqueue("job-1")
    granted = []

    async def taken() -> bool:
        for stream in streams:
            await stream.settle()
            granted.extend(stream.take("granted"))
        return bool(granted)

    await eventually(taken)
    # Whoever else might have been granted it has answered since.
    await taken()
    assert [item.stub.id for item in granted] == ["job-1"]


async def test_private_work_goes_to_its_owner_alone(relay: RelayUnderTest) -> None:
    bob, alice = await relay.daemon("runner-b").connect(limit=4), await relay.daemon().connect(limit=4)
    await bob.settle()
    await relay.enqueue("job-1", audience=job_pb2.AUDIENCE_PRIVATE)
    await alice.next("granted")
    await bob.settle()
    assert not bob.take("granted")


async def test_only_advertised_kinds_are_granted(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(limit=4, matrix=[row("llm.chat")])
    await relay.enqueue("job-1")
    await stream.settle()
    assert not stream.take("granted")
    changed = daemon_plane_pb2.CapabilitiesChanged(matrix=[row("llm.chat"), row()])
    await stream.send(capabilities_changed=changed)
    assert (await stream.next("granted")).stub.id == "job-1"


async def test_a_kind_that_is_withdrawn_is_granted_no_more(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(limit=4)
    await stream.send(capabilities_changed=daemon_plane_pb2.CapabilitiesChanged())
    await stream.settle()
    await relay.enqueue("job-1")
    await stream.settle()
    assert not stream.take("granted")
    presence = await relay.store.presence("runner-1")
    assert presence is not None
    assert presence.capabilities == ()


async def test_a_device_that_drains_keeps_its_leases_and_gets_no_more(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(limit=4)
    await relay.enqueue("job-1")
    granted = await stream.next("granted")
    await stream.send(grant_ack=ACK(leases=[ref(granted)]), draining=daemon_plane_pb2.Draining())
    await stream.settle()
    await relay.enqueue("job-2")
    await stream.send(credit=session_pb2.Credit(limit=9))
    await stream.settle()
    assert not stream.take("granted")
    assert await relay.state("job-1") == "awaiting-payload"


# -- acknowledgement ----------------------------------------------------------------------


async def test_a_grant_that_is_not_acknowledged_goes_back_without_penalty(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(limit=1)
    await stream.next("verdicts")
    await relay.enqueue("job-1")
    lease = ref(await stream.next("granted"))
    # Sealed in time: what runs out is the device's time alone.
    await relay.seal(lease)
    await relay.clock.advance_async(9_999)
    await stream.settle()
    assert await relay.state("job-1") == "ready"
    await relay.clock.advance_async(1)
    (verdict,) = (await stream.next("verdicts")).verdicts
    assert verdict.lease == lease
    assert verdict.state == job_pb2.LEASE_STATE_LOST
    assert verdict.end_reason == job_pb2.LEASE_END_REASON_RELEASED
    await relay.becomes("job-1", "queued")
    job = await relay.store.job("demo", "job-1")
    assert job is not None
    assert (job.seal_attempts, job.refused_by, job.reoffer_to, job.retry_after_ms) == (0, (), None, ())
    # The same device may have it again as soon as it says that it has room.
    await stream.send(credit=session_pb2.Credit(limit=2))
    again = ref(await stream.next("granted"))
    assert again == await relay.lease_of("job-1")
    assert again != lease


async def test_an_acknowledged_grant_stays(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(limit=1)
    await relay.enqueue("job-1")
    lease = ref(await stream.next("granted"))
    await stream.send(grant_ack=ACK(leases=[lease]))
    await relay.seal(lease)
    await relay.pass_time(59_000, alive=[stream])
    assert await relay.state("job-1") == "ready"


async def test_each_grant_has_its_own_time(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(limit=2)
    await relay.enqueue("job-1")
    await relay.seal(ref(await stream.next("granted")))
    await relay.clock.advance_async(6_000)
    await relay.enqueue("job-2")
    await relay.seal(ref(await stream.next("granted")))
    await relay.clock.advance_async(4_000)
    await relay.becomes("job-1", "queued")
    assert await relay.state("job-2") == "ready"
    await relay.clock.advance_async(6_000)
    await relay.becomes("job-2", "queued")


@pytest.mark.parametrize("end", ["goodbye", "cancel"])
async def test_grants_on_their_way_go_back_when_the_stream_ends(relay: RelayUnderTest, end: str) -> None:
    stream = await relay.daemon().connect(limit=2)
    await relay.enqueue("job-1", "job-2")
    kept, lost = ref(await stream.next("granted")), ref(await stream.next("granted"))
    await stream.send(grant_ack=ACK(leases=[kept]))
    await stream.settle()
    if end == "goodbye":
        await stream.send(goodbye=session_pb2.Goodbye(reason="bye"))
        assert await stream.end() is None
    else:
        stream.call.cancel()
    await relay.becomes(lost.job_id, "queued")
    assert await relay.state(kept.job_id) == "awaiting-payload"
    notices = await relay.store.notices("demo", 0, 10)
    assert [notice.requeue for notice in notices if notice.key.job_id == lost.job_id] == [
        RequeueCause.RELEASED
    ]


async def test_a_grant_that_comes_back_goes_to_another_device_at_once(relay: RelayUnderTest) -> None:
    first = await relay.daemon("runner-1").connect(limit=1)
    await relay.enqueue("job-1")
    await first.next("granted")
    second = await relay.daemon("runner-2").connect(limit=1)
    await second.settle()
    first.call.cancel()
    assert (await second.next("granted")).stub.id == "job-1"


async def test_grants_that_do_not_fit_the_lane_wait_for_room(serve: Serve) -> None:
    """They are neither lost nor handed out and taken back again and again."""
    async with serve(SessionTimes(queued_notices=2)) as relay:
        for owner in ("alice", "bob"):
            for number in range(2):
                for site in ("demo", "other"):
                    stub = relay.stub(f"{owner}-{number}", owner=owner, site=relay.site(site).keys.key_id)
                    await relay.site(site).call("EnqueueJob", site_plane_pb2.EnqueueJobRequest(stub=stub))
        stream = await relay.daemon("runner-b").connect(limit=100)
        leases = {(await stream.next("granted")).lease.id for _ in range(8)}
        # Eight grants, and not one that was made and taken back.
        names = [f"{owner}-{number}" for owner in ("alice", "bob") for number in range(2)]
        in_force = [await relay.lease_of(name, site) for name in names for site in ("demo", "other")]
        assert leases == {lease.lease_id for lease in in_force}
        rows = [row for site in ("demo", "other") for row in await relay.store.notices(site, 0, 100)]
        assert [row.kind for row in rows] == [NoticeKind.PLEASE_SEAL] * 8


async def test_a_device_at_its_most_leases_is_given_more_when_it_has_finished_some(
    relay: RelayUnderTest,
) -> None:
    """Without more credit: what it gave before still stands."""
    stream = await relay.daemon().connect(limit=1_000)
    held = []
    for number in range(65):
        await relay.enqueue(f"job-{number}")
        if number < 64:
            held.append(ref(await stream.next("granted")))
            await relay.seal(held[-1])
    await stream.send(grant_ack=ACK(leases=held))
    await stream.settle()
    assert not stream.take("granted")
    released = daemon_plane_pb2.ReleaseLeasesRequest(
        leases=held[:1], reason=daemon_plane_pb2.RELEASE_REASON_REFUSED
    )
    done = daemon_plane_pb2.CompleteJobRequest(
        lease=held[1], envelope=relay.result(), disposition=job_pb2.DISPOSITION_OK
    )
    await relay.daemon().call("CompleteJob", done)
    assert (await stream.next("granted")).stub.id == "job-64"
    await relay.enqueue("job-65")
    await stream.send(call=daemon_plane_pb2.DaemonCall(id=1, release_leases=released))
    assert (await stream.next("granted")).stub.id == "job-65"
