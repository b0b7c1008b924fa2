"""Running a piece of work under a cancel signal and a time limit, and ending it for certain."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from relay_service.client.backends.base import BackendFailure, RunCanceled
from service_common.clocks import Clock

Result = TypeVar("Result")


async def supervise(
    work: Coroutine[Any, Any, Result], cancelled: asyncio.Event, seconds: float, clock: Clock
) -> Result:
    """Await the work until it ends, `cancelled` is set or its time is up, whichever is first.

    However this ends, the work has ended too, its clean-up included.

    Args:
        work: Cleans up after itself when it is cancelled, within a bounded time.
        cancelled: Ends the work when set.
        seconds: How long the work may take.
        clock: Measures that time.

    Raises:
        RunCanceled: `cancelled` was set.
        BackendFailure: The time was up (`timeout`), or what the work itself raised.
    """
    if cancelled.is_set():
        work.close()
        raise RunCanceled
    task = asyncio.create_task(work)
    cancel = asyncio.create_task(cancelled.wait())
    expiry = asyncio.create_task(clock.sleep(seconds))
    try:
        await asyncio.wait((task, cancel, expiry), return_when=asyncio.FIRST_COMPLETED)
        finished = task.done()
    finally:
        await end_tasks(task, cancel, expiry)
    if cancelled.is_set():
        raise RunCanceled
    if not finished:
        raise BackendFailure("timeout")
    return task.result()


async def within(clock: Clock, seconds: float, event: asyncio.Event) -> bool:
    """Wait for the event, at most so long, and tell whether it is set."""
    if event.is_set():
        return True
    happened = asyncio.create_task(event.wait())
    expiry = asyncio.create_task(clock.sleep(seconds))
    try:
        await asyncio.wait((happened, expiry), return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(happened, expiry)
    return event.is_set()


async def end_tasks(*tasks: asyncio.Task[Any]) -> None:
    """Cancel the tasks and wait until all of them have ended."""
    for task in tasks:
        task.cancel()
    await settle(*tasks)
    for task in tasks:
        # Whoever ends a task has no use for how it failed, but a failure nobody reads is logged as a defect.
        if not task.cancelled():
            task.exception()


async def settle(*tasks: asyncio.Task[Any]) -> None:
    """Wait until the tasks have ended, even if the caller is cancelled meanwhile.

    A second cancellation must not cut the clean-up short that the first one began: that is how child
    processes are left behind. It is raised again when everything has ended.
    """
    interrupted: asyncio.CancelledError | None = None
    while pending := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError as error:
            interrupted = error
    if interrupted is not None:
        raise interrupted
