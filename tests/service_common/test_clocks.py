import asyncio

import pytest

from service_common.clocks import ManualClock, SystemClock


def test_a_manual_clock_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock(1_000)
    assert clock.now_ms() == 1_000
    assert clock.monotonic() == 0.0
    clock.advance(2_500)
    assert clock.now_ms() == 3_500
    assert clock.monotonic() == 2.5


def test_time_does_not_go_back() -> None:
    clock = ManualClock(1_000)
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)


def test_callbacks_run_in_the_order_they_are_due_each_at_its_own_instant() -> None:
    clock = ManualClock(0)
    seen: list[tuple[str, int]] = []
    clock.call_later(0.3, lambda: seen.append(("c", clock.now_ms())))
    clock.call_later(0.1, lambda: seen.append(("a", clock.now_ms())))
    clock.call_later(0.2, lambda: seen.append(("b", clock.now_ms())))
    clock.advance(250)
    assert seen == [("a", 100), ("b", 200)]
    assert clock.now_ms() == 250
    clock.advance(50)
    assert seen == [("a", 100), ("b", 200), ("c", 300)]


def test_callbacks_due_at_once_run_in_the_order_they_were_set() -> None:
    clock = ManualClock(0)
    seen: list[str] = []
    # 0.1 + 0.2 is not 0.3 in floating point, and the instant is the same one all the same.
    clock.call_later(0.1 + 0.2, lambda: seen.append("first"))
    clock.call_later(0.3, lambda: seen.append("second"))
    clock.advance(300)
    assert seen == ["first", "second"]


def test_a_callback_may_set_one_that_is_due_within_the_same_advance() -> None:
    clock = ManualClock(0)
    beats: list[int] = []

    def beat() -> None:
        beats.append(clock.now_ms())
        clock.call_later(0.1, beat)

    clock.call_later(0.1, beat)
    clock.advance(350)
    assert beats == [100, 200, 300]
    assert clock.pending == 1


def test_a_cancelled_callback_never_runs() -> None:
    clock = ManualClock(0)
    seen: list[int] = []
    handle = clock.call_later(0.1, lambda: seen.append(1))
    handle.cancel()
    clock.advance(1_000)
    handle.cancel()
    assert seen == []
    assert clock.pending == 0


async def test_sleepers_wake_when_their_time_has_come() -> None:
    clock = ManualClock(0)
    woken: list[str] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    tasks = [asyncio.create_task(sleeper("late", 2)), asyncio.create_task(sleeper("early", 1))]
    await asyncio.sleep(0)
    clock.advance(1_999)
    await tasks[1]
    assert woken == ["early"]
    clock.advance(1)
    await tasks[0]
    assert woken == ["early", "late"]


async def test_advance_async_lets_a_task_sleep_again_at_each_instant() -> None:
    clock = ManualClock(0)
    beats: list[int] = []

    async def beat() -> None:
        while True:
            await clock.sleep(10)
            beats.append(clock.now_ms())

    task = asyncio.create_task(beat())
    await clock.advance_async(35_000)
    assert beats == [10_000, 20_000, 30_000]
    assert clock.now_ms() == 35_000
    task.cancel()
    await asyncio.wait((task,))


async def test_a_cancelled_sleeper_leaves_nothing_behind() -> None:
    clock = ManualClock(0)
    task = asyncio.create_task(clock.sleep(5))
    await asyncio.sleep(0)
    assert clock.pending == 1
    task.cancel()
    await asyncio.wait((task,))
    assert clock.pending == 0


async def test_sleeping_for_no_time_returns_without_an_advance() -> None:
    clock = ManualClock(0)
    await clock.sleep(0)
    await clock.sleep(-1)
    assert clock.now_ms() == 0


def test_after_a_stall_what_was_due_runs_late() -> None:
    clock = ManualClock(0)
    seen: list[int] = []
    clock.call_later(1, lambda: seen.append(clock.now_ms()))
    clock.stall(3_000)
    assert seen == []
    clock.advance(0)
    assert seen == [3_000]


async def test_the_system_clock_is_the_loops() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    called = asyncio.Event()
    clock.call_later(0, called.set)
    await asyncio.wait_for(called.wait(), 10)
    await clock.sleep(0)
    assert clock.monotonic() >= before
    # After 2023 and in milliseconds.
    assert 1_700_000_000_000 < clock.now_ms() < 10_000_000_000_000
