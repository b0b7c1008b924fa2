"""Every test of streams that goes by one relay alone holds for two, with site and device apart."""

# ruff: noqa: F403
from typing import Any

from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from tests.harness.waiting import eventually
from tests.relay_service.relay_fixture import RelayUnderTest, ref
from tests.relay_service.streams import test_grants, test_leases, test_notices, test_projection_changes
from tests.relay_service.streams.test_concurrent_calls import *
from tests.relay_service.streams.test_grants import *
from tests.relay_service.streams.test_inventory import *
from tests.relay_service.streams.test_leases import *
from tests.relay_service.streams.test_notices import *
from tests.relay_service.streams.test_payloads import *
from tests.relay_service.streams.test_projection_changes import *

# These go by what only one relay on the memory store has: leases with names that are known beforehand, a
# waiting room to look into, news that has arrived when the next answer does, or a sweep that is over as
# soon as the clock of the test has moved.
ONE_RELAY_ALONE = (
    (test_grants, "test_a_job_that_waits_is_granted_with_the_hello"),
    (test_grants, "test_a_job_goes_to_one_of_several_devices"),
    (test_grants, "test_a_grant_that_is_not_acknowledged_goes_back_without_penalty"),
    (test_leases, "test_a_lease_whose_site_does_not_seal_is_lost_at_the_end_of_the_window"),
    (test_notices, "test_the_course_of_a_job_as_its_site_hears_it"),
    (test_notices, "test_what_stays_unsettled_is_sent_again_after_half_a_minute"),
    (test_notices, "test_naming_the_wrong_id_settles_nothing"),
    (test_projection_changes, "test_a_call_that_waits_profits_as_well"),
    (test_projection_changes, "test_a_call_that_waits_for_a_device_that_is_cut_off_gets_nothing"),
)
for module, name in ONE_RELAY_ALONE:
    assert hasattr(module, name)
    del globals()[name]


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


async def test_a_window_that_lapses_is_told_at_the_other_relay(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(limit=1)
    await stream.next("verdicts")
    await relay.enqueue("job-1")
    lease = ref(await stream.next("granted"))
    await stream.send(grant_ack=daemon_plane_pb2.GrantAck(leases=[lease]))
    await stream.settle()

    async def told() -> list[Any]:
        # Real round trips lie between the clock's moves and the sweep that notices them.
        await relay.clock.advance_async(1_000)
        await stream.settle()
        return stream.take("verdicts")

    (told_of,) = await eventually(told)
    (verdict,) = told_of.verdicts
    assert verdict.lease == lease
    assert verdict.end_reason == job_pb2.LEASE_END_REASON_WINDOW_LAPSED
