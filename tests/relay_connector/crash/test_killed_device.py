"""A device that is killed while its model runs.

The prompt is given once: what the device had not delivered is lost, and the question ends without an answer.
Where that is allowed, another device gets the prompt, and the model may have begun twice; one answer is kept.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from durable_service.client import TaskState
from tests.relay_connector.crash.pair_ground import HOURS_MS, PairGround, pair

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[PairGround]:
    # Short, so that a dead device is soon known to be dead.
    async with pair(tmp_path, lease="3s") as ground:
        yield ground


async def test_a_device_that_dies_has_had_the_prompt_and_nobody_else_gets_it(ground: PairGround) -> None:
    await ground.create("a")
    await ground.work()
    await ground.until_counted("a", 1, 0)
    await ground.kill("runner-1")
    await ground.serve_device("runner-2")
    answer = await ground.answer("a")
    ground.let_go("a")
    assert (answer.disposition, answer.why, answer.retryable) == ("none", "given-up", True)
    assert ground.counted("a") == (1, 0)


async def test_where_that_is_allowed_another_device_takes_over(ground: PairGround) -> None:
    await ground.create("a")
    await ground.work(again=True)
    await ground.until_counted("a", 1, 0)
    await ground.kill("runner-1")
    await ground.serve_device("runner-2")
    await ground.until_counted("a", 2, 0)
    ground.let_go("a")
    answer = await ground.answer("a")
    assert (answer.text, answer.runner_id) == ("the answer to a", "runner-2")
    assert ground.counted("a") == (2, 1)


async def test_a_device_that_dies_before_it_has_the_prompt_is_no_loss(ground: PairGround) -> None:
    await ground.kill("runner-1")
    await ground.create("a")
    await ground.work()
    await ground.until_published("a")
    ground.let_go("a")
    await ground.serve_device("runner-2")
    assert (await ground.answer("a")).runner_id == "runner-2"
    assert ground.counted("a") == (1, 1)


async def test_a_device_and_the_worker_die_together(ground: PairGround) -> None:
    await ground.create("a")
    worker = await ground.work()
    await ground.until_counted("a", 1, 0)
    worker.kill()
    await ground.kill("runner-1")
    await ground.pass_lease()
    await ground.serve_device("runner-2")
    # Claimed three times, and nobody has a prompt to give: the relay drops it.
    await ground.until_forgotten("a")
    # By a clock that is past the deadline, and past what clocks may differ.
    await ground.work(ahead_ms=HOURS_MS)
    answer = await ground.answer("a")
    assert (answer.disposition, answer.why) == ("none", "expired")
    assert ground.counted("a") == (1, 0)


async def test_a_cancel_of_the_task_stops_the_model(ground: PairGround) -> None:
    await ground.create("a")
    await ground.work()
    await ground.until_counted("a", 1, 0)
    await ground.clients["alice"].tasks.cancel("a", "no longer wanted")
    task = await ground.ended("a")
    assert task.state is TaskState.CANCELED
    # The gate is shut: nothing but the cancel has ended it.
    assert ground.counted("a") == (1, 0)
    await ground.until_forgotten("a")
