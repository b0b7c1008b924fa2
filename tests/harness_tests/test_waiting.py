import asyncio

import pytest

from tests.harness.waiting import eventually


async def test_the_first_true_answer_is_returned() -> None:
    answers = iter([None, 0, "", "there"])
    assert await eventually(lambda: next(answers)) == "there"


async def test_a_predicate_may_be_async() -> None:
    answers = iter([False, False, True])

    async def answer() -> bool:
        await asyncio.sleep(0)
        return next(answers)

    assert await eventually(answer) is True


async def test_failure_names_what_was_awaited_and_the_last_value() -> None:
    with pytest.raises(AssertionError, match=r"^not within 0\.03 s: three devices; last value: 0$"):
        await eventually(lambda: 0, 0.03, "three devices")


async def test_a_description_may_be_made_at_the_time_of_failure() -> None:
    seen: list[int] = []

    def look() -> bool:
        seen.append(1)
        return False

    with pytest.raises(AssertionError, match=r"more than [1-9]\d* looks"):
        await eventually(look, 0.03, lambda: f"more than {len(seen)} looks")


async def test_a_predicate_that_hangs_is_ended() -> None:
    with pytest.raises(AssertionError, match="the first evaluation never ended"):
        await eventually(asyncio.Event().wait, 0.03)


async def test_what_a_predicate_raises_is_not_waited_out() -> None:
    for error in (ZeroDivisionError("gone"), TimeoutError("its own")):

        def look(error: Exception = error) -> bool:
            raise error

        with pytest.raises(type(error), match=r"gone|its own"):
            await eventually(look, 60)


async def test_an_event_that_stays_set_does_not_starve_the_loop() -> None:
    event = asyncio.Event()
    event.set()
    loop = asyncio.get_running_loop()
    happened: list[str] = []
    loop.call_later(0.02, happened.append, "it")
    assert await eventually(lambda: happened, notify=event) == ["it"]


@pytest.mark.parametrize("kind", [asyncio.Event, asyncio.Condition])
async def test_a_notification_is_enough_and_not_needed(
    kind: type[asyncio.Event] | type[asyncio.Condition],
) -> None:
    notify = kind()
    happened: list[str] = []

    async def happen() -> None:
        if isinstance(notify, asyncio.Condition):
            async with notify:
                happened.append("it")
                notify.notify_all()
        else:
            happened.append("it")

    task = asyncio.create_task(happen())
    assert await eventually(lambda: happened, notify=notify) == ["it"]
    await task
