"""Writes of one process to one task, one after the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from durable_service.core.definition import TaskKey


class Turns:
    """One update at a time for each task: those of one process never conflict, and are told in order."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[TaskKey, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, key: TaskKey) -> AsyncIterator[None]:
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        async with lock:
            yield
