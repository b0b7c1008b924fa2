"""A relay, and a device, that is killed while a question is under way.

A relay that keeps its jobs on the disk loses no answer. One that keeps them in memory may lose an answer, and
asks for the prompt a second time, which it does not get.
"""

from pathlib import Path

import pytest

from tests.relay_connector.crash.pair_ground import PairGround, pair
from tests.relay_service.store.valkey_fixture import require_valkey

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]


@pytest.fixture(params=["memory", "embedded"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "embedded":
        require_valkey()
        return f"embedded:{tmp_path / 'jobs'}"
    return "memory:"


async def restart_relay(ground: PairGround) -> None:
    await ground.kill("relay")
    await ground.serve_relay()


async def test_before_any_device_has_the_question(tmp_path: Path, store: str) -> None:
    async with pair(tmp_path, store=store) as ground:
        await ground.kill("runner-1")
        await ground.create("a")
        worker = await ground.work()
        await ground.until_published("a")
        await restart_relay(ground)
        ground.let_go("a")
        await ground.serve_device()
        await worker.wait_line("answered a ok the answer to a", 60)
        assert (await ground.answer("a")).text == "the answer to a"
        assert ground.counted("a") == (1, 1)


async def test_while_the_model_runs(tmp_path: Path, store: str) -> None:
    async with pair(tmp_path, store=store) as ground:
        await ground.create("a")
        await ground.work()
        await ground.until_counted("a", 1, 0)
        await restart_relay(ground)
        if store == "memory:":
            # The relay has forgotten the job. It is published again, claimed again, and not given away again.
            answer = await ground.answer("a")
            ground.let_go("a")
            assert (answer.disposition, answer.why) == ("none", "given-up")
        else:
            ground.let_go("a")
            assert (await ground.answer("a")).text == "the answer to a"
        assert ground.counted("a")[0] == 1


async def test_when_the_answer_is_there_and_its_worker_is_dead(tmp_path: Path, store: str) -> None:
    async with pair(tmp_path, store=store) as ground:
        await ground.create("a")
        ground.let_go("a")
        first = await ground.work(fuse="result:after")
        await first.wait_line("dies result:after")
        await ground.until_result_at_relay("a")
        await restart_relay(ground)
        await ground.pass_lease()
        second = await ground.work(ahead_ms=600_000 + 120_000 if store == "memory:" else 0)
        await second.wait_line("answered a", 60)
        answer = await ground.answer("a")
        if store == "memory:":
            assert (answer.disposition, answer.why) == ("none", "expired")
        else:
            assert answer.text == "the answer to a"
        assert ground.counted("a") == (1, 1)


async def test_when_the_answer_is_kept_and_its_worker_is_dead(tmp_path: Path, store: str) -> None:
    async with pair(tmp_path, store=store) as ground:
        await ground.create("a")
        ground.let_go("a")
        first = await ground.work(fuse="artifact:after")
        await first.wait_line("dies artifact:after")
        await restart_relay(ground)
        await ground.pass_lease()
        second = await ground.work()
        # Whatever the relay has forgotten.
        await second.wait_line("answered a ok the answer to a", 60)
        assert (await ground.answer("a")).text == "the answer to a"
        assert ground.counted("a") == (1, 1)


async def test_a_question_waits_for_its_relay(tmp_path: Path, store: str) -> None:
    async with pair(tmp_path, store=store) as ground:
        worker = await ground.work()
        await worker.wait_line("ready")
        await ground.kill("relay")
        await ground.create("a")
        ground.let_go("a")
        await worker.wait_line("runs a")
        await ground.serve_relay()
        assert (await ground.answer("a")).text == "the answer to a"
        assert ground.counted("a") == (1, 1)
