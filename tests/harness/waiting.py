"""Waiting for a fact to become true. The only place in the tests that polls."""

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

_T = TypeVar("_T")
_INTERVAL_SECONDS = 0.01


async def eventually(
    predicate: Callable[[], Awaitable[_T | None] | _T | None],
    timeout: float = 10.0,
    describe: str | Callable[[], str] = "the awaited condition",
    *,
    notify: asyncio.Event | asyncio.Condition | None = None,
) -> _T:
    """Waits until a predicate answers something true, and returns that.

    Args:
        predicate: Plain or async. What it raises is raised at once, as a fact that can no longer come true.
        timeout: Seconds in all, an async predicate that hangs included.
        describe: What is awaited, for the failure; a callable is asked only then.
        notify: Wakes the next evaluation before the interval of 10 ms is over. An event is never cleared here.

    Raises:
        AssertionError: With the description and the last value.
    """
    last = "none, the first evaluation never ended"
    try:
        async with asyncio.timeout(timeout) as deadline:
            while True:
                answer = predicate()
                value = cast("_T | None", await answer if inspect.isawaitable(answer) else answer)
                if value:
                    return value
                last = repr(value)
                await _interval(notify)
    except TimeoutError:
        if not deadline.expired():
            raise
    what = describe if isinstance(describe, str) else describe()
    raise AssertionError(f"not within {timeout:g} s: {what}; last value: {last}")


async def _interval(notify: asyncio.Event | asyncio.Condition | None) -> None:
    # Waiting for an event that is set would return without yielding: the loop would never run again.
    if notify is None or (isinstance(notify, asyncio.Event) and notify.is_set()):
        return await asyncio.sleep(_INTERVAL_SECONDS)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_INTERVAL_SECONDS), contextlib.AsyncExitStack() as lock:
            if isinstance(notify, asyncio.Condition):
                await lock.enter_async_context(notify)
            await notify.wait()
