"""Every test of streams that goes by one relay alone holds for two, with site and device apart."""

# ruff: noqa: F403
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from service_common.sessions.limits import SessionTimes
from tests.harness.waiting import eventually
from tests.relay_service.relay_fixture import RelayUnderTest, Serve, ref
from tests.relay_service.streams.test_concurrent_calls import *
from tests.relay_service.streams.test_grants import *
from tests.relay_service.streams.test_identities import *
from tests.relay_service.streams.test_inventory import *
from tests.relay_service.streams.test_leases import *
from tests.relay_service.streams.test_liveness import *
from tests.relay_service.streams.test_notices import *
from tests.relay_service.streams.test_notices import ended_jobs, jobs_of
from tests.relay_service.streams.test_payloads import *
from tests.relay_service.streams.test_projection_changes import *

# A lane that is full is one of one relay: how fast rows come to it is the store's business. Beside each, what
# has to hold however fast they come.
ONE_RELAY_ALONE = {
    "test_notices_that_do_not_fit_are_reported_and_sent_when_there_is_room": (
        "test_notices_that_do_not_fit_are_sent_when_there_is_room"
    ),
}
for name in ONE_RELAY_ALONE:
    del globals()[name]


def test_what_is_left_to_one_relay_has_a_counterpart() -> None:
    assert all(callable(globals()[counterpart]) for counterpart in ONE_RELAY_ALONE.values())


async def test_notices_that_do_not_fit_are_sent_when_there_is_room(serve: Serve) -> None:
    async with serve(SessionTimes(queued_notices=4)) as relay:
        names = [f"job-{number:02}" for number in range(50)]
        await ended_jobs(relay, *names)
        site = await relay.site().connect()
        assert await jobs_of(site, 50) == names
        await site.settle()
        assert not site.take("notice")


async def test_one_job_goes_to_one_of_the_devices(relay: RelayUnderTest) -> None:
    streams = [await relay.daemon(name).connect(limit=4) for name in ("runner-1", "runner-2", "runner-b")]
    for stream in streams:
        await stream.settle()
    await relay.enqueue("job-1", "job-2")
    granted: list[str] = []

    async def all_granted() -> bool:
        for stream in streams:
            await stream.settle()
            granted.extend(item.stub.id for item in stream.take("granted"))
        return len(granted) >= 2

    await eventually(all_granted)
    for stream in streams:
        await stream.settle()
        assert not stream.take("granted")
    assert sorted(granted) == ["job-1", "job-2"]


async def test_a_result_reaches_the_site_at_the_other_relay(relay: RelayUnderTest) -> None:
    site, daemon = await relay.site().connect(), await relay.daemon().connect(limit=5)
    await relay.enqueue("job-1")
    seal = (await site.next("notice")).please_seal
    lease = ref(await daemon.next("granted"))
    assert (seal.lease_id, seal.runner_id) == (lease.lease_id, "runner-1")
    await relay.seal(lease)
    await daemon.next("payload_ready")
    done = daemon_plane_pb2.CompleteJobRequest(
        lease=lease, envelope=relay.result(), disposition=job_pb2.DISPOSITION_OK
    )
    await relay.daemon().call("CompleteJob", done)
    assert (await site.next("notice")).result_ready.lease_id == lease.lease_id
