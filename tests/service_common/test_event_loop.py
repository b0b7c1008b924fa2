"""Loops of their own, in processes of their own: gRPC binds a process to one loop."""

import sys

import pytest

from tests.harness.processes import running

WHICH_LOOP = """
import asyncio, sys
{before}
from service_common.event_loop import run

async def main():
    print(type(asyncio.get_running_loop()).__module__, flush=True)
    return 7

sys.exit(run(main()))
"""

UNHANDLED = """
import asyncio, gc
from service_common.event_loop import run
from service_common.logs import configure_logs

async def fail():
    raise ValueError("the prompt")

async def main():
    configure_logs()
    task = asyncio.ensure_future(fail())
    await asyncio.wait((task,))
    del task
    gc.collect()

run(main())
"""

TUNED = """
import gc
from service_common.event_loop import tune_garbage_collector

tune_garbage_collector()
print(gc.get_threshold(), gc.get_freeze_count() > 0, gc.isenabled(), flush=True)
"""


async def output(script: str, status: int) -> list[str]:
    async with running([sys.executable, "-c", script]) as process:
        assert await process.wait() == status, process.describe()
        return process.lines


@pytest.mark.process
async def test_servers_run_on_uvloop_and_return_what_main_returns() -> None:
    assert await output(WHICH_LOOP.format(before=""), 7) == ["uvloop"]


@pytest.mark.process
async def test_without_uvloop_the_loop_is_asyncios() -> None:
    lines = await output(WHICH_LOOP.format(before="sys.modules['uvloop'] = None"), 7)
    assert lines == ["asyncio.unix_events"]


@pytest.mark.process
async def test_a_task_that_failed_unseen_is_logged_without_the_text_of_its_exception() -> None:
    (line,) = await output(UNHANDLED, 0)
    assert "Task exception was never retrieved" in line
    assert "builtins.ValueError" in line
    assert "the prompt" not in line


@pytest.mark.process
async def test_the_collector_is_frozen_once_and_made_rare() -> None:
    assert await output(TUNED, 0) == ["(10000, 50, 1000) True True"]
