import asyncio

import pytest

from service_common.clocks import ManualClock
from service_common.deadlines import wait_all, within


async def test_work_in_time_returns_its_result() -> None:
    clock = ManualClock(0)

    async def work() -> str:
        await clock.sleep(1)
        return "done"

    task = asyncio.create_task(within(clock, 2, work()))
    await clock.advance_async(1_000)
    assert await task == "done"
    assert clock.pending == 0


async def test_work_that_fails_raises_its_own_error() -> None:
    async def work() -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await within(ManualClock(0), 2, work())


async def test_work_that_takes_too_long_is_cancelled() -> None:
    clock = ManualClock(0)
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(within(clock, 2, work()))
    await clock.advance_async(1_999)
    assert not task.done()
    await clock.advance_async(1)
    with pytest.raises(TimeoutError):
        await task
    assert ended.is_set()


async def test_work_that_resists_its_cancellation_does_not_outlast_the_limit() -> None:
    clock = ManualClock(0)
    released = asyncio.Event()

    async def stubborn() -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    task = asyncio.create_task(within(clock, 2, stubborn()))
    await clock.advance_async(2_000)
    with pytest.raises(TimeoutError):
        await task
    released.set()


async def test_cancelling_the_waiting_cancels_the_work() -> None:
    clock = ManualClock(0)
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(within(clock, 2, work()))
    await clock.advance_async(0)
    task.cancel()
    await asyncio.wait((task,))
    await asyncio.wait_for(ended.wait(), 10)
    assert task.cancelled()
    assert clock.pending == 0


async def test_waiting_for_all_names_those_that_are_late() -> None:
    clock = ManualClock(0)
    early = asyncio.create_task(clock.sleep(1))
    late = asyncio.create_task(clock.sleep(9))
    waiting = asyncio.create_task(wait_all(clock, 5, (early, late)))
    await clock.advance_async(5_000)
    assert await waiting == {late}
    late.cancel()
    await asyncio.wait((late,))


async def test_waiting_for_nothing_takes_no_time() -> None:
    assert await wait_all(ManualClock(0), 5, ()) == set()
