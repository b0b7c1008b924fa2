"""A worker that is killed at every step of a question: the model runs once, and its answer is kept once."""

from collections.abc import AsyncIterator

import pytest

from durable_service.client import ActionState
from relay_service.client import JobResult
from tests.relay_connector.crash.pair_ground import HOURS_MS, PairGround, pair

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
async def pair_of_services(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PairGround]:
    async with pair(tmp_path_factory.mktemp("pair")) as ground:
        yield ground


async def test_nobody_is_killed(ground: PairGround, task: str) -> None:
    await ground.create(task)
    ground.let_go(task)
    await ground.work()
    answer = await ground.answer(task)
    assert (answer.disposition, answer.text) == ("ok", f"the answer to {task}")
    assert (answer.runner_id, answer.runner_owner) == ("runner-1", "alice")
    assert ground.counted(task) == (1, 1)
    # Confirmed, and then settled.
    await ground.until_forgotten(task)


@pytest.mark.parametrize(
    "step",
    ["BeginDispatch:after", "enqueue:before", "enqueue:after", "give:before", "PutCheckpoint:before"],
)
async def test_before_the_prompt_has_left(ground: PairGround, task: str, step: str) -> None:
    await ground.create(task)
    ground.let_go(task)
    first = await ground.work(fuse=step)
    await first.wait_line(f"dies {step}")
    await ground.pass_lease()
    second = await ground.work()
    # Looked up, found not to have been given, and asked by the next worker under the same name.
    await second.wait_line(f"answered {task} ok the answer to {task}", 60)
    assert (await ground.answer(task)).text == f"the answer to {task}"
    assert ground.counted(task) == (1, 1)


async def test_while_the_model_runs(ground: PairGround, task: str) -> None:
    await ground.create(task)
    first = await ground.work()
    await ground.until_counted(task, 1, 0)
    first.kill()
    await ground.pass_lease()
    second = await ground.work()
    # Until the model is done nothing is known, and the handler does not run.
    await second.wait_line("ready")
    ground.let_go(task)
    await second.wait_line(f"answered {task} ok the answer to {task}", 90)
    assert (await ground.answer(task)).text == f"the answer to {task}"
    assert ground.counted(task) == (1, 1)


@pytest.mark.parametrize(
    "step",
    ["sealed", "result:after", "artifact:before", "artifact:after", "ConfirmAction:before"],
)
async def test_after_the_prompt_has_left(ground: PairGround, task: str, step: str) -> None:
    await ground.create(task)
    ground.let_go(task)
    first = await ground.work(fuse=step)
    await first.wait_line(f"dies {step}")
    await ground.until_result_at_relay(task)
    await ground.pass_lease()
    second = await ground.work()
    await second.wait_line(f"answered {task} ok the answer to {task}", 60)
    # The first handler alone has asked; what the second one was handed was found by evidence.
    action = await ground.action(task)
    assert action.state is ActionState.CONFIRMED
    assert action.evidence_ref is not None
    assert (await ground.answer(task)).text == f"the answer to {task}"
    assert ground.counted(task) == (1, 1)
    await ground.until_forgotten(task)


@pytest.mark.parametrize("step", ["ConfirmAction:after", "settle:before"])
async def test_after_the_answer_is_confirmed_and_before_the_relay_is_told(
    ground: PairGround, task: str, step: str
) -> None:
    await ground.create(task)
    ground.let_go(task)
    first = await ground.work(fuse=step)
    await first.wait_line(f"dies {step}")
    await ground.pass_lease()
    second = await ground.work()
    await second.wait_line(f"answered {task} ok the answer to {task}", 60)
    assert (await ground.answer(task)).text == f"the answer to {task}"
    assert ground.counted(task) == (1, 1)
    # Harmless: the relay keeps it for a day, and then forgets it by itself.
    assert isinstance(await ground.result_at_relay(task), JobResult)


async def test_after_the_relay_was_told(ground: PairGround, task: str) -> None:
    await ground.create(task)
    ground.let_go(task)
    first = await ground.work(fuse="settle:after")
    await first.wait_line("dies settle:after")
    await ground.pass_lease()
    second = await ground.work()
    await second.wait_line(f"answered {task} ok the answer to {task}", 60)
    assert (await ground.answer(task)).text == f"the answer to {task}"
    assert ground.counted(task) == (1, 1)
    assert await ground.result_at_relay(task) == "JOB_NOT_FOUND"


async def test_between_the_note_and_the_prompt(ground: PairGround, task: str) -> None:
    """It is written down that the prompt leaves, and it has not: nobody can tell, so nobody sends it."""
    await ground.create(task)
    ground.let_go(task)
    first = await ground.work(fuse="give:after")
    await first.wait_line("dies give:after")
    await ground.pass_lease()
    # Claimed three times, and nobody has a prompt to give: the relay drops it.
    await ground.until_forgotten(task)
    # By a clock that is past the deadline, and past what clocks may differ, nothing will come of it.
    await ground.work(ahead_ms=HOURS_MS)
    answer = await ground.answer(task)
    assert (answer.disposition, answer.why) == ("none", "expired")
    assert ground.counted(task) == (0, 0)
