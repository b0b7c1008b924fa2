"""Ending a server that was measured."""

import asyncio
from asyncio.subprocess import Process
from collections.abc import Awaitable
from contextlib import suppress


async def end_process(process: Process, ended: Awaitable[object], seconds: float) -> None:
    """Asks a process to end, and kills it when it has not done so in time.

    Args:
        ended: done when the process has ended; what has to be read meanwhile is read by it.
    """
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(ended, seconds)
    except TimeoutError:
        process.kill()
        await process.wait()
