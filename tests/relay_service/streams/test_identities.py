"""Two streams of one device: the newer one wins, unless two processes fight."""

import asyncio

import grpc

from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from sealwork.session.v1 import session_pb2
from tests.harness.waiting import eventually
from tests.relay_service.raw_client import RawStream
from tests.relay_service.relay_fixture import RelayUnderTest, ref


async def superseded(stream: RawStream) -> None:
    refusal = await stream.end()
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "SESSION_SUPERSEDED")
    assert refusal.retry_after_ms == 30_000


async def test_the_newer_stream_of_a_device_wins(relay: RelayUnderTest) -> None:
    older = await relay.daemon().connect(limit=5)
    newer = await relay.daemon().connect(limit=5, process_id="process-2")
    await superseded(older)
    await relay.ended("daemon", "superseded")
    assert relay.open_streams("daemon") == 1
    # The older one's clean-up came after the newer one's arrival, and has not touched it.
    await newer.settle()
    await relay.enqueue("job-1")
    await newer.next("granted")


async def test_two_hellos_at_once_leave_one_stream(relay: RelayUnderTest) -> None:
    daemon = relay.daemon()
    streams = [daemon.open() for _ in range(4)]
    await asyncio.gather(*(daemon.greet(stream) for stream in streams))
    await relay.ended("daemon", "superseded", 3)
    assert relay.open_streams("daemon") == 1
    assert len(relay.server_of("daemon").relay.daemons.of("runner-1")) == 1
    await eventually(lambda: sum(stream.closed for stream in streams) == 3)


async def test_the_successor_keeps_the_leases_that_it_names(relay: RelayUnderTest) -> None:
    """Acknowledged or on their way when the older stream was superseded."""
    older = await relay.daemon().connect(limit=2)
    await relay.enqueue("job-1", "job-2")
    leases = [ref(await older.next("granted")), ref(await older.next("granted"))]
    for lease in leases:
        await relay.seal(lease)
    await older.send(grant_ack=daemon_plane_pb2.GrantAck(leases=leases[:1]))
    await older.settle()
    newer = await relay.daemon().connect(limit=0, inventory={"leases": leases})
    await superseded(older)
    verdicts = (await newer.next("verdicts")).verdicts
    assert [verdict.lease for verdict in verdicts] == leases
    assert {verdict.state for verdict in verdicts} == {job_pb2.LEASE_STATE_ACTIVE}
    await relay.ended("daemon", "superseded")
    await relay.pass_time(20_000, alive=[newer])
    assert [await relay.state(lease.job_id) for lease in leases] == ["ready", "ready"]


async def test_the_successor_gives_up_what_it_does_not_name(relay: RelayUnderTest) -> None:
    """Another process of the device knows nothing of what the first one held."""
    older = await relay.daemon().connect(limit=2)
    await relay.enqueue("job-1", "job-2")
    leases = [ref(await older.next("granted")), ref(await older.next("granted"))]
    await older.send(grant_ack=daemon_plane_pb2.GrantAck(leases=leases[:1]))
    await older.settle()
    await relay.daemon().connect(limit=0, process_id="process-2")
    await relay.becomes("job-1", "queued")
    await relay.becomes("job-2", "queued")


async def test_a_device_that_reconnects_again_and_again_is_no_conflict(relay: RelayUnderTest) -> None:
    for _ in range(6):
        await relay.daemon().connect()
    await relay.ended("daemon", "superseded", 5)


async def test_two_processes_that_keep_replacing_each_other(relay: RelayUnderTest) -> None:
    streams = [await relay.daemon().connect(process_id=f"process-{number % 2}") for number in range(4)]
    for stream in streams[:3]:
        await superseded(stream)
    refused = relay.daemon().open()
    await relay.daemon().greet(refused, process_id="process-0")
    refusal = await refused.end()
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "DEVICE_ID_CONFLICT")
    # The one that is there stays, and moves to a new stream when it wants to.
    await streams[3].settle()
    await relay.daemon().connect(process_id="process-1")
    await superseded(streams[3])


async def test_a_conflict_is_over_after_a_minute(relay: RelayUnderTest) -> None:
    streams = [await relay.daemon().connect(process_id=f"process-{number % 2}") for number in range(4)]
    await relay.pass_time(60_001, alive=streams[3:])
    await relay.daemon().connect(process_id="process-0")
    await superseded(streams[3])


async def test_a_process_that_was_restarted_is_no_conflict(relay: RelayUnderTest) -> None:
    """Its old stream is gone when the new process says hello, so nothing is replaced."""
    for number in range(6):
        stream = await relay.daemon().connect(process_id=f"process-{number}")
        await stream.send(goodbye=session_pb2.Goodbye())
        assert await stream.end() is None
    await relay.ended("daemon", "goodbye", 6)


async def test_the_teardown_of_an_old_stream_leaves_the_new_one_its_grants(relay: RelayUnderTest) -> None:
    older = await relay.daemon().connect(limit=1)
    await relay.enqueue("job-1")
    await older.next("granted")
    newer = await relay.daemon().connect(limit=1)
    await superseded(older)
    lease = ref(await newer.next("granted"))
    await relay.seal(lease)
    await newer.send(grant_ack=daemon_plane_pb2.GrantAck(leases=[lease]))
    await relay.pass_time(15_000, alive=[newer])
    assert await relay.state("job-1") == "ready"
