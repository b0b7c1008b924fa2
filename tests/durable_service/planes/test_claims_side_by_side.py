import asyncio

from tests.durable_service.durable_fixture import MAIL, DurableUnderTest

WORKERS = 40


async def test_as_many_workers_as_there_are_tasks_get_one_each_at_once(service: DurableUnderTest) -> None:
    names = [f"task-{number:02}" for number in range(WORKERS)]
    for name in names:
        await service.create(name)

    async def claim(number: int) -> str:
        answer = await service.call(
            "worker",
            "ClaimNext",
            drivers=[MAIL],
            worker_id=f"worker-{number}",
            claim_id=f"claim-{number}",
        )
        task_id: str = answer.claimed.task.task_id
        return task_id

    claimed = await asyncio.gather(*(claim(number) for number in range(WORKERS)))
    assert sorted(claimed) == names
    # The same claim is the same task, and a new one finds nothing more.
    assert await claim(7) == claimed[7]
    assert await claim(WORKERS) == ""
