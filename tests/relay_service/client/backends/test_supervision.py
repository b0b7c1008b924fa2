import asyncio

import pytest

from relay_service.client.backends.base import BackendFailure, RunCanceled
from relay_service.client.backends.supervision import settle, supervise, within
from service_common.clocks import ManualClock


class Work:
    """Work that ends when told to, and whose clean-up ends when told to."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.finish = asyncio.Event()
        self.cleaning = asyncio.Event()
        self.cleaned = asyncio.Event()
        self.may_be_clean = asyncio.Event()

    async def run(self) -> str:
        self.started.set()
        try:
            await self.finish.wait()
        finally:
            self.cleaning.set()
            await self.may_be_clean.wait()
            self.cleaned.set()
        return "answer"


async def test_the_result_comes_through(manual_clock: ManualClock) -> None:
    work = Work()
    work.finish.set()
    work.may_be_clean.set()
    assert await supervise(work.run(), asyncio.Event(), 10, manual_clock) == "answer"
    assert manual_clock.pending == 0


async def test_a_failure_comes_through(manual_clock: ManualClock) -> None:
    async def fail() -> str:
        raise BackendFailure("output-too-large")

    with pytest.raises(BackendFailure) as caught:
        await supervise(fail(), asyncio.Event(), 10, manual_clock)
    assert caught.value.code == "output-too-large"


async def test_cancel_waits_for_the_clean_up(manual_clock: ManualClock) -> None:
    work, cancelled = Work(), asyncio.Event()
    task = asyncio.create_task(supervise(work.run(), cancelled, 10, manual_clock))
    await work.started.wait()
    cancelled.set()
    await work.cleaning.wait()
    assert not task.done()
    work.may_be_clean.set()

    with pytest.raises(RunCanceled):
        await task
    assert work.cleaned.is_set()


async def test_cancel_wins_over_an_answer_of_the_same_moment(manual_clock: ManualClock) -> None:
    work, cancelled = Work(), asyncio.Event()
    work.may_be_clean.set()
    task = asyncio.create_task(supervise(work.run(), cancelled, 10, manual_clock))
    await work.started.wait()
    work.finish.set()
    cancelled.set()

    with pytest.raises(RunCanceled):
        await task


async def test_work_cancelled_beforehand_does_not_start(manual_clock: ManualClock) -> None:
    work, cancelled = Work(), asyncio.Event()
    cancelled.set()

    with pytest.raises(RunCanceled):
        await supervise(work.run(), cancelled, 10, manual_clock)
    assert not work.started.is_set()


async def test_time_is_up_at_the_limit(manual_clock: ManualClock) -> None:
    work = Work()
    work.may_be_clean.set()
    task = asyncio.create_task(supervise(work.run(), asyncio.Event(), 10, manual_clock))
    await work.started.wait()
    await manual_clock.advance_async(9_999)
    assert not task.done()
    manual_clock.advance(1)

    with pytest.raises(BackendFailure) as caught:
        await task
    assert caught.value.code == "timeout"
    assert work.cleaned.is_set()


async def test_a_second_cancellation_does_not_cut_the_clean_up_short(manual_clock: ManualClock) -> None:
    work = Work()
    task = asyncio.create_task(supervise(work.run(), asyncio.Event(), 10, manual_clock))
    await work.started.wait()
    task.cancel()
    await work.cleaning.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    work.may_be_clean.set()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.cleaned.is_set()


async def test_settle_without_cancellation_just_waits() -> None:
    work = Work()
    work.finish.set()
    work.may_be_clean.set()
    task = asyncio.create_task(work.run())
    await settle(task)
    assert task.result() == "answer"


async def test_within(manual_clock: ManualClock) -> None:
    event = asyncio.Event()
    waiting = asyncio.create_task(within(manual_clock, 1, event))
    await manual_clock.advance_async(999)
    assert not waiting.done()
    manual_clock.advance(1)
    assert await waiting is False

    waiting = asyncio.create_task(within(manual_clock, 1, event))
    event.set()
    assert await waiting is True
    assert await within(manual_clock, 1, event) is True
    assert manual_clock.pending == 0
