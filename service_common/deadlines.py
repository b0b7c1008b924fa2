"""Waiting with an end, by an injected clock."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from service_common.clocks import Clock

T = TypeVar("T")


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work, or give it up after that many seconds.

    Raises:
        TimeoutError: The time was up; the work was cancelled and has ended.
    """
    working = asyncio.ensure_future(work)
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((working, timer), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
    finally:
        timer.cancel()
        if not working.done():
            await _cancel(working)
    raise TimeoutError


async def _cancel(task: "asyncio.Future[T]") -> None:
    task.cancel()
    # `wait` neither raises what the task raised nor mistakes its cancellation for ours.
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()
