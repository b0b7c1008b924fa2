"""What a device says that it holds, and what the relay says to that."""

from typing import Any

from relay_service.core.model import RequeueCause
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from sealwork.session.v1 import session_pb2
from tests.relay_service.raw_client import RawStream
from tests.relay_service.relay_fixture import RelayUnderTest, ref

ACTIVE, CANCEL_REQUESTED = job_pb2.LEASE_STATE_ACTIVE, job_pb2.LEASE_STATE_CANCEL_REQUESTED
LOST, COMPLETED = job_pb2.LEASE_STATE_LOST, job_pb2.LEASE_STATE_COMPLETED
Inventory = daemon_plane_pb2.Inventory
LeaseRef = job_pb2.LeaseRef


async def left_behind(relay: RelayUnderTest, *job_ids: str) -> list[Any]:
    """Leases of a device whose stream was lost: acknowledged, and sealed to it."""
    stream = await relay.daemon().connect(limit=len(job_ids))
    leases = []
    for job_id in job_ids:
        await relay.enqueue(job_id)
        leases.append(ref(await stream.next("granted")))
        await relay.seal(leases[-1])
    await stream.send(grant_ack=daemon_plane_pb2.GrantAck(leases=leases))
    await stream.settle()
    stream.call.cancel()
    await relay.ended("daemon", "lost")
    return leases


async def verdicts_of(stream: RawStream) -> list[Any]:
    verdicts = await stream.next("verdicts")
    assert verdicts.renewal_id == 0
    return list(verdicts.verdicts)


async def test_every_named_lease_gets_a_verdict(relay: RelayUnderTest) -> None:
    active, cancelled, completed, expired = await left_behind(relay, "a", "b", "c", "d")
    await relay.cancel("b")
    done = daemon_plane_pb2.CompleteJobRequest(
        lease=completed, envelope=relay.result(), disposition=job_pb2.DISPOSITION_OK
    )
    await relay.daemon().call("CompleteJob", done)
    await relay.clock.advance_async(30_000)
    renewed = daemon_plane_pb2.RenewLeasesRequest(leases=[active, cancelled])
    await relay.daemon().call("RenewLeases", renewed)
    await relay.clock.advance_async(30_000)
    await relay.becomes("d", "queued")

    stream = await relay.daemon().connect(
        limit=0, inventory=Inventory(leases=[active, cancelled, completed, expired])
    )
    verdicts = await verdicts_of(stream)
    assert [verdict.lease for verdict in verdicts] == [active, cancelled, completed, expired]
    assert [verdict.state for verdict in verdicts] == [ACTIVE, CANCEL_REQUESTED, COMPLETED, LOST]
    assert [verdict.remaining.ToMilliseconds() for verdict in verdicts] == [60_000, 60_000, 0, 0]
    assert verdicts[3].end_reason == job_pb2.LEASE_END_REASON_EXPIRED


async def test_a_lease_that_never_was_is_lost(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(
        inventory=Inventory(leases=[LeaseRef(job_id="job", lease_id="lease")])
    )
    (verdict,) = await verdicts_of(stream)
    assert verdict.state == LOST
    assert verdict.end_reason == job_pb2.LEASE_END_REASON_UNSPECIFIED


async def test_another_devices_lease_is_lost_and_stays_the_others(relay: RelayUnderTest) -> None:
    (lease,) = await left_behind(relay, "job-1")
    stream = await relay.daemon("runner-2").connect(limit=0, inventory=Inventory(leases=[lease]))
    (verdict,) = await verdicts_of(stream)
    assert (verdict.state, verdict.end_reason) == (LOST, job_pb2.LEASE_END_REASON_UNSPECIFIED)
    assert await relay.state("job-1") == "ready"


async def test_leases_that_are_not_named_go_back_at_once_without_penalty(relay: RelayUnderTest) -> None:
    kept, forgotten = await left_behind(relay, "job-1", "job-2")
    stream = await relay.daemon().connect(limit=0, inventory=Inventory(leases=[kept]))
    assert [verdict.lease for verdict in await verdicts_of(stream)] == [kept]
    await relay.becomes(forgotten.job_id, "queued")
    job = await relay.store.job("demo", forgotten.job_id)
    assert job is not None
    assert (job.seal_attempts, job.refused_by, job.retry_after_ms) == (0, (), ())
    rows = await relay.store.notices("demo", 0, 9)
    assert [row.requeue for row in rows if row.key.job_id == forgotten.job_id] == [RequeueCause.RELEASED]
    # The very device that lost it may have it again.
    await stream.send(credit=session_pb2.Credit(limit=1))
    assert (await stream.next("granted")).stub.id == forgotten.job_id


async def test_an_inventory_in_parts_is_answered_after_the_last(relay: RelayUnderTest) -> None:
    leases = await left_behind(relay, "job-1", "job-2", "job-3")
    stream = await relay.daemon().connect(limit=0, inventory=Inventory(leases=leases[:1], more=True))
    await stream.settle()
    assert not stream.take("verdicts")
    await stream.send(inventory=Inventory(leases=leases[1:2], more=True))
    await stream.send(inventory=Inventory(leases=leases[2:]))
    verdicts = await verdicts_of(stream)
    assert [verdict.lease for verdict in verdicts] == leases
    assert {verdict.state for verdict in verdicts} == {ACTIVE}


async def test_an_inventory_without_end_ends_the_stream(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(inventory=Inventory(more=True))
    for part in range(21):
        leases = [LeaseRef(job_id="j", lease_id=f"{part}-{number}") for number in range(500)]
        await stream.send(inventory=Inventory(leases=leases, more=True))
    refusal = await stream.end()
    assert refusal is not None
    assert refusal.reason == "PROTOCOL_VIOLATION"


async def test_a_later_inventory_does_not_touch_grants_on_their_way(relay: RelayUnderTest) -> None:
    """It was drawn up before they arrived; taken back, the device would work for nothing."""
    stream = await relay.daemon().connect(limit=1)
    await stream.next("verdicts")
    await relay.enqueue("job-1")
    lease = ref(await stream.next("granted"))
    await stream.send(inventory=Inventory())
    assert await verdicts_of(stream) == []
    await stream.send(grant_ack=daemon_plane_pb2.GrantAck(leases=[lease]))
    await stream.settle()
    assert await relay.state("job-1") == "awaiting-payload"
    # Acknowledged, it has to be named.
    await stream.send(inventory=Inventory())
    await relay.becomes("job-1", "queued")


async def test_a_named_lease_needs_no_acknowledgement(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(limit=1)
    await relay.enqueue("job-1")
    lease = ref(await stream.next("granted"))
    await relay.seal(lease)
    await stream.send(inventory=Inventory(leases=[lease]))
    await relay.pass_time(10_000, alive=[stream])
    assert await relay.state("job-1") == "ready"


async def test_a_payload_that_came_meanwhile_is_announced_again(relay: RelayUnderTest) -> None:
    leases = await left_behind(relay, "job-1", "job-2")
    stream = await relay.daemon().connect(limit=0, inventory=Inventory(leases=leases))
    ready = [await stream.next("payload_ready") for _ in leases]
    assert [item.lease for item in ready] == leases
    assert [item.size_bytes for item in ready] == [14, 14]
    assert not any(item.HasField("envelope") for item in ready)


async def test_many_verdicts_come_in_frames_of_the_allowed_size(relay: RelayUnderTest) -> None:
    leases = [LeaseRef(job_id="é" * 60, lease_id=f"{number:0120}") for number in range(600)]
    stream = await relay.daemon().connect(inventory=Inventory(leases=leases[:200], more=True))
    await stream.send(inventory=Inventory(leases=leases[200:400], more=True))
    await stream.send(inventory=Inventory(leases=leases[400:]))
    await stream.settle()
    seen = [verdict for verdicts in stream.take("verdicts") for verdict in verdicts.verdicts]
    assert [verdict.lease for verdict in seen] == leases
    assert max(frame.ByteSize() for frame in stream.frames) <= 65_536
