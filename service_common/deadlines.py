"""Waiting with an end, by an injected clock."""

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar

from service_common.clocks import Clock

T = TypeVar("T")


async def wait_all(
    clock: Clock, seconds: float, tasks: "Collection[asyncio.Future[T]]"
) -> "set[asyncio.Future[T]]":
    """Wait until all tasks are done, at most that many seconds, and return those that are not."""
    if not tasks:
        return set()
    timer = asyncio.ensure_future(clock.sleep(seconds))
    together = asyncio.ensure_future(asyncio.wait(tasks))
    try:
        await asyncio.wait((together, timer), return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
        # Ends the waiting, not the tasks.
        together.cancel()
    return {task for task in tasks if not task.done()}


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work, or give it up after that many seconds.

    Raises:
        TimeoutError: The time was up; the work was cancelled.
    """
    working = asyncio.ensure_future(work)
    try:
        if await wait_all(clock, seconds, (working,)):
            raise TimeoutError
    finally:
        # Not waited for: work that resists its cancellation must not outlast the limit.
        working.cancel()
    return working.result()
