"""Work that outlives the call that started it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

_log = structlog.get_logger(__name__)


class Background:
    """Keeps a reference to every task it runs; the event loop alone keeps only weak ones."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def run(self, work: Coroutine[Any, Any, object]) -> None:
        """Runs `work`; a failure is logged, since nobody awaits it."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    async def settle(self) -> None:
        """Returns when all that was started has ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def cancel(self) -> None:
        """Ends all that was started."""
        for task in self._tasks:
            task.cancel()
        await self.settle()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("background_task_failed", exc_info=task.exception())
