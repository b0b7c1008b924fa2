"""Waiting for a fact to become true. The only place in the tests that polls."""

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar, overload

_T = TypeVar("_T")
_Description: TypeAlias = str | Callable[[], str]
_Notification: TypeAlias = asyncio.Event | asyncio.Condition | None
_INTERVAL_SECONDS = 0.01


@overload
async def eventually(
    predicate: Callable[[], Awaitable[_T | None]],
    timeout: float = ...,
    describe: _Description = ...,
    *,
    notify: _Notification = ...,
) -> _T: ...
@overload
async def eventually(
    predicate: Callable[[], _T | None],
    timeout: float = ...,
    describe: _Description = ...,
    *,
    notify: _Notification = ...,
) -> _T: ...
async def eventually(
    predicate: Callable[[], Any],
    timeout: float = 10.0,
    describe: _Description = "the awaited condition",
    *,
    notify: _Notification = None,
) -> Any:
    """Waits until a predicate answers something true, and returns that.

    Args:
        predicate: Plain or async. What it raises is raised at once, as a fact that can no longer come true.
        timeout: Seconds in all, an async predicate that hangs included.
        describe: What is awaited, for the failure; a callable is asked only then.
        notify: Wakes the next evaluation before the interval of 10 ms is over. An event is never cleared.

    Raises:
        AssertionError: With the description and the last value.
    """
    last = "none, the first evaluation never ended"
    deadline = asyncio.timeout(timeout)
    try:
        async with deadline:
            while True:
                value = predicate()
                if inspect.isawaitable(value):
                    value = await value
                if value:
                    return value
                last = repr(value)
                await _interval(notify)
    except TimeoutError:
        if not deadline.expired():
            raise
    what = describe if isinstance(describe, str) else describe()
    raise AssertionError(f"not within {timeout:g} s: {what}; last value: {last}")


async def _interval(notify: _Notification) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_INTERVAL_SECONDS), contextlib.AsyncExitStack() as lock:
            if isinstance(notify, asyncio.Condition):
                await lock.enter_async_context(notify)
            # wait() on an event that is set returns without yielding: the loop would never run again.
            if notify is None or (isinstance(notify, asyncio.Event) and notify.is_set()):
                await asyncio.sleep(_INTERVAL_SECONDS)
            else:
                await notify.wait()
