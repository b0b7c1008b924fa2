import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.processes import RunningProcess, running
from tests.harness.waiting import eventually

pytestmark = pytest.mark.process

UNTIL_KILLED = "print('port 4711', flush=True)\nimport signal\nwhile True: signal.pause()"


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def state_of(pid: int) -> str:
    """The letter of the kernel: T stopped, Z dead and not reaped; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


async def test_a_ready_process_tells_its_readiness_line_and_is_gone_afterwards() -> None:
    async with running(python(UNTIL_KILLED), ready=r"port (\d+)") as process:
        assert process.ready is not None
        assert process.ready[1] == "4711"
        assert os.getpgid(process.pid) == process.pid != os.getpgid(0)
    assert process.returncode == -signal.SIGKILL
    assert state_of(process.pid) == ""


@pytest.mark.parametrize("as_coroutine", [False, True])
async def test_readiness_may_be_a_callable(as_coroutine: bool) -> None:
    async def later(process: RunningProcess) -> bool:
        return "port 4711" in process.stdout

    ready: Callable[[RunningProcess], bool] = lambda process: "port 4711" in process.stdout  # noqa: E731
    async with running(python(UNTIL_KILLED), ready=later if as_coroutine else ready) as process:
        assert process.lines == ["port 4711"]


async def test_a_process_that_is_never_ready_fails_with_its_output_and_is_gone() -> None:
    with pytest.raises(AssertionError, match="a line like 'never'") as failure:
        async with running(python(UNTIL_KILLED), ready="never", ready_timeout=0.5):
            pytest.fail("it was not ready")
    assert "exit status -9" in failure.value.__notes__[0]
    assert "  | port 4711" in failure.value.__notes__[0]


async def test_a_process_that_ends_before_it_is_ready_fails_at_once_with_its_last_words() -> None:
    with pytest.raises(AssertionError, match="the output ended without a line like") as failure:
        async with running(python("raise SystemExit('no port left')"), ready="ready", ready_timeout=60):
            pytest.fail("it was not ready")
    assert "exit status 1" in failure.value.__notes__[0]
    assert "  | no port left" in failure.value.__notes__[0]


async def test_a_process_that_ends_is_not_asked_for_its_readiness_again() -> None:
    with pytest.raises(AssertionError, match="ended before it was ready"):
        async with running(python("pass"), ready=lambda _: False, ready_timeout=60):
            pytest.fail("it was not ready")


async def test_lines_of_both_outputs_are_kept_and_waited_for() -> None:
    program = (
        "import sys; print('one'); print('two'); print('zwei', file=sys.stderr); print('no end', end='')"
    )
    async with running(python(program)) as process:
        assert (await process.wait_line("^t(.*)$"))[1] == "wo"
        assert await process.wait() == 0
        assert process.stdout == ["one", "two", "no end"]
        assert process.stderr == ["zwei"]
        assert sorted(process.lines) == ["no end", "one", "two", "zwei"]
        with pytest.raises(AssertionError, match="the output ended"):
            await process.wait_line("one", after=len(process.lines))


async def test_a_killed_process_has_the_status_of_its_signal() -> None:
    async with running(python(UNTIL_KILLED), ready="port") as process:
        process.kill()
        assert await process.wait() == -9
        process.kill()


async def test_a_terminated_process_may_end_in_its_own_way() -> None:
    program = (
        "import signal, sys\n"
        "def leave(*_):\n print('bye', flush=True)\n sys.exit(7)\n"
        "signal.signal(signal.SIGTERM, leave)\n" + UNTIL_KILLED
    )
    async with running(python(program), ready="port") as process:
        process.terminate()
        assert await process.wait() == 7
        assert process.lines == ["port 4711", "bye"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="states are read from /proc")
async def test_a_stopped_process_stands_still_until_it_is_continued() -> None:
    program = (
        "import signal\nsignal.signal(signal.SIGCONT, lambda *_: print('on', flush=True))\n" + UNTIL_KILLED
    )
    async with running(python(program), ready="port") as process:
        process.stop()
        await eventually(lambda: state_of(process.pid) == "T")
        process.cont()
        await process.wait_line("^on$")
        process.stop()
    assert process.returncode == -9


async def test_what_a_killed_process_left_behind_is_killed_as_well() -> None:
    program = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "print('child', child.pid, flush=True)\nchild.wait()"
    )
    async with running(python(program), ready=r"child (\d+)") as process:
        assert process.ready is not None
        grandchild = int(process.ready[1])
        process.kill()
        assert await process.wait() == -9
        assert state_of(grandchild) not in {"", "Z"}
    await eventually(lambda: state_of(grandchild) in {"", "Z"})


async def test_the_environment_is_added_to_and_a_failure_in_the_block_carries_the_output() -> None:
    program = "import os; print(os.environ['GREETING'], 'PATH' in os.environ)"
    with pytest.raises(AssertionError, match="the output ended") as failure:
        async with running(python(program), env={"GREETING": "hello"}) as process:
            await process.wait_line("good bye")
    assert "  | hello True" in failure.value.__notes__[0]
