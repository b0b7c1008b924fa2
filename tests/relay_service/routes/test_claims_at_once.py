"""Devices that ask in the same instant never get the same job."""

import asyncio

from sealwork.relay.v1 import site_plane_pb2
from tests.relay_service.planes.scene import claim
from tests.relay_service.relay_fixture import RelayUnderTest, keys_of

OWNERS = ("alice", "bob")
SITES = ("demo", "other")


async def test_one_job_goes_to_one_of_many_who_ask_at_once(any_relay: RelayUnderTest) -> None:
    """Each route gives out two jobs before it waits for its site, so four routes give out eight."""
    for site in SITES:
        for owner in OWNERS:
            for number in range(3):
                stub = any_relay.stub(f"{owner}-{number}", owner=owner, site=keys_of(site).key_id)
                await any_relay.site(site).call("EnqueueJob", site_plane_pb2.EnqueueJobRequest(stub=stub))
    devices = [any_relay.daemon(name) for name in ("runner-1", "runner-2", "runner-b")]
    answers = await asyncio.gather(
        *(
            device.call("ClaimJobs", claim(f"claim-{number}", max_jobs=2))
            for number in range(8)
            for device in devices
        )
    )
    granted = [(granted.stub.site, granted.stub.id) for answer in answers for granted in answer.granted]
    assert len(granted) == len(set(granted)) == 8
    leases = [granted.lease.id for answer in answers for granted in answer.granted]
    assert len(set(leases)) == 8
