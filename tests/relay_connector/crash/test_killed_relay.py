"""A relay, and a device, that is killed while a question is under way.

A relay that keeps its jobs on the disk loses no answer. One that keeps them in memory may lose an answer, and
asks for the prompt a second time, which it does not get.
"""

from collections.abc import AsyncIterator

import pytest

from tests.relay_connector.crash.pair_ground import HOURS_MS, PairGround, pair
from tests.relay_service.store.valkey_fixture import require_valkey

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]


@pytest.fixture(scope="module", params=["memory", "embedded"])
async def pair_of_services(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[PairGround]:
    folder, store = tmp_path_factory.mktemp("pair"), "memory:"
    if request.param == "embedded":
        require_valkey()
        store = f"embedded:{folder / 'jobs'}"
    async with pair(folder, store=store) as ground:
        yield ground


async def restart_relay(ground: PairGround) -> None:
    await ground.kill("relay")
    await ground.serve_relay()


async def test_before_any_device_has_the_question(ground: PairGround, task: str) -> None:
    await ground.kill("runner-1")
    await ground.create(task)
    worker = await ground.work()
    await ground.until_published(task)
    await restart_relay(ground)
    ground.let_go(task)
    await ground.serve_device()
    await worker.wait_line(f"answered {task} ok the answer to {task}", 60)
    assert (await ground.answer(task)).text == f"the answer to {task}"
    assert ground.counted(task) == (1, 1)


async def test_while_the_model_runs(ground: PairGround, task: str) -> None:
    await ground.create(task)
    await ground.work()
    await ground.until_counted(task, 1, 0)
    await restart_relay(ground)
    if ground.store == "memory:":
        # The relay has forgotten the job. It is published again, claimed again, and not given away again.
        answer = await ground.answer(task)
        ground.let_go(task)
        assert (answer.disposition, answer.why) == ("none", "given-up")
    else:
        ground.let_go(task)
        assert (await ground.answer(task)).text == f"the answer to {task}"
    assert ground.counted(task)[0] == 1


async def test_when_the_answer_is_there_and_its_worker_is_dead(ground: PairGround, task: str) -> None:
    await ground.create(task)
    ground.let_go(task)
    first = await ground.work(fuse="result:after")
    await first.wait_line("dies result:after")
    await ground.until_result_at_relay(task)
    await restart_relay(ground)
    await ground.pass_lease()
    second = await ground.work(ahead_ms=HOURS_MS if ground.store == "memory:" else 0)
    await second.wait_line(f"answered {task}", 60)
    answer = await ground.answer(task)
    if ground.store == "memory:":
        assert (answer.disposition, answer.why) == ("none", "expired")
    else:
        assert answer.text == f"the answer to {task}"
    assert ground.counted(task) == (1, 1)


async def test_when_the_answer_is_kept_and_its_worker_is_dead(ground: PairGround, task: str) -> None:
    await ground.create(task)
    ground.let_go(task)
    first = await ground.work(fuse="artifact:after")
    await first.wait_line("dies artifact:after")
    await restart_relay(ground)
    await ground.pass_lease()
    second = await ground.work()
    # Whatever the relay has forgotten.
    await second.wait_line(f"answered {task} ok the answer to {task}", 60)
    assert (await ground.answer(task)).text == f"the answer to {task}"
    assert ground.counted(task) == (1, 1)


async def test_a_question_waits_for_its_relay(ground: PairGround, task: str) -> None:
    worker = await ground.work()
    await worker.wait_line("ready")
    await ground.kill("relay")
    await ground.create(task)
    ground.let_go(task)
    await worker.wait_line(f"runs {task}")
    await ground.serve_relay()
    assert (await ground.answer(task)).text == f"the answer to {task}"
    assert ground.counted(task) == (1, 1)
