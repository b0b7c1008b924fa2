"""Unary calls that are made beside a stream."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from relay_service.client.envelope import EnvelopeRefused
from relay_service.client.errors import RelayError


class Errands:
    """Tasks that nobody awaits; each is kept until it has ended."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, errand: Coroutine[Any, Any, None], failed: Callable[[], None] = lambda: None) -> None:
        """Starts one; `failed` is called when the relay refuses it, or what it brings cannot be opened."""
        task = asyncio.create_task(_run(errand, failed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """Ends all that are under way."""
        for task in self._tasks:
            task.cancel()


async def _run(errand: Coroutine[Any, Any, None], failed: Callable[[], None]) -> None:
    try:
        await errand
    except (RelayError, EnvelopeRefused):
        failed()
