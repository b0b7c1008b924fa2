"""Workers, the relay and the device are killed at random: no prompt is begun twice, and every task ends.

The seed is fixed: what is killed when is told beforehand.
"""

import contextlib
from pathlib import Path
from random import Random

import pytest

from durable_service.client import ActionState, Task, TaskState
from tests.harness.waiting import eventually
from tests.relay_connector.crash.pair_ground import HOURS_MS, PairGround, pair
from tests.relay_service.store.valkey_fixture import require_valkey

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

SEED = 20_261_130
TASKS = [f"t-{number}" for number in range(6)]
WORKERS_KILLED = 10
# Every so many of them something else is killed as well.
RELAY_EACH = 3
DEVICE_EACH = 4
# Points that a worker with all these tasks comes by at most.
POINTS = 60


async def test_no_prompt_is_begun_twice(tmp_path: Path) -> None:
    require_valkey()
    random = Random(SEED)
    async with pair(tmp_path, store=f"embedded:{tmp_path / 'jobs'}") as ground:
        for task_id in TASKS:
            await ground.create(task_id)
        ground.let_go(*TASKS)
        for number in range(1, WORKERS_KILLED + 1):
            await work_and_die(ground, random.randint(1, POINTS))
            if number % RELAY_EACH == 0:
                await ground.kill("relay")
                await ground.serve_relay()
            if number % DEVICE_EACH == 0:
                await ground.kill("runner-1")
                await ground.serve_device()
            await ground.pass_lease()
        await settle_what_can_be(ground)
        await settle_the_rest(ground)
        for task_id in TASKS:
            answer = await ground.answer(task_id)
            begun, done = ground.counted(task_id)
            assert begun <= 1
            assert (answer.disposition, answer.why) in {
                ("ok", None),
                ("none", "given-up"),
                ("none", "expired"),
            }
            if answer.disposition == "ok":
                assert (begun, done, answer.content) == (1, 1, f"the answer to {task_id}")


async def work_and_die(ground: PairGround, points: int) -> None:
    """A worker that dies at its n-th step, or is killed when it has nothing to do any more."""
    worker = await ground.work(left=points)
    await worker.wait_line("ready|dies", 30)

    async def idle() -> bool:
        return worker.returncode is not None or not await unsettled(ground, given=False)

    with contextlib.suppress(AssertionError):
        # What stands still is looked at ever more seldom: then a kill does no harm either.
        await eventually(idle, 20)
    worker.kill()
    await worker.wait()


async def settle_what_can_be(ground: PairGround) -> None:
    """Lets workers live until what is left are prompts that were given, and that the relay has forgotten."""
    for _ in range(12):
        worker = await ground.work()
        await worker.wait_line("ready")
        with_hope = True
        try:
            await eventually(lambda: nothing_left(ground), 10, "hope to be over")
            with_hope = False
        except AssertionError:
            pass
        worker.kill()
        await worker.wait()
        await ground.pass_lease()
        if not with_hope:
            return
    raise AssertionError([await ground.action(each) for each in TASKS])


async def settle_the_rest(ground: PairGround) -> None:
    """By a clock that is past every deadline, and past what clocks may differ."""
    await ground.work(ahead_ms=HOURS_MS)
    for task_id in TASKS:
        await ground.ended(task_id)


async def nothing_left(ground: PairGround) -> bool:
    return not await unsettled(ground, given=True)


async def unsettled(ground: PairGround, *, given: bool) -> list[Task]:
    """The tasks that have not ended, without those of which a worker cannot learn anything for now.

    Args:
        given: Wait also for what may come of prompts that were given, until the relay has forgotten them.
    """
    left = []
    for task_id in TASKS:
        task = await ground.task(task_id)
        action = await ground.action(task_id)
        looked_up = action.evidence_ref or "" if action and action.state is ActionState.UNKNOWN else ""
        hopeless = looked_up.startswith("relay-job-unknown" if given else "relay-job-")
        if task.state is not TaskState.COMPLETED and not hopeless:
            left.append(task)
    return left
