"""A claim id whose lease is over gets no other task, by this process or by another."""

from pathlib import Path

import pytest

from tests.durable_service.durable_fixture import MAIL, DurableUnderTest, serving

CLAIM = {"drivers": [MAIL], "worker_id": "worker-1", "claim_id": "once"}


async def spent(service: DurableUnderTest, how: str) -> None:
    await service.create("first")
    claimed = (await service.call("worker", "ClaimNext", **CLAIM)).claimed
    lease = {"task_id": "first", "worker_id": "worker-1", "fence": claimed.lease.fence}
    await service.call("worker", how, lease=lease)
    await service.create("second")


@pytest.mark.parametrize("how", ["ReleaseTask", "CompleteTask"])
async def test_by_the_same_process(service: DurableUnderTest, how: str) -> None:
    await spent(service, how)

    assert (await service.party("worker").refused("ClaimNext", **CLAIM)).reason == "LEASE_LOST"
    assert (await service.task("second")).fence == 0


@pytest.mark.parametrize("how", ["ReleaseTask", "CompleteTask"])
async def test_after_a_restart(tmp_path: Path, how: str) -> None:
    async with serving(database=tmp_path / "tasks.db") as service:
        await spent(service, how)
    async with serving(database=tmp_path / "tasks.db") as service:
        assert (await service.party("worker").refused("ClaimNext", **CLAIM)).reason == "LEASE_LOST"
        assert (await service.task("second")).fence == 0
        again = await service.call("worker", "ClaimNext", **(CLAIM | {"claim_id": "another"}))
        assert again.HasField("claimed")
