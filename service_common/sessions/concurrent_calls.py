"""Calls of one stream that are carried out side by side."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

_log = structlog.get_logger(__name__)

Keys = frozenset[str]


class ConcurrentCalls:
    """A bounded number of calls that wait for their answers at the same time.

    Calls that share a key go one after the other, in the order in which they were started. One
    without keys of its own (None) may have to do with any of the others: it goes alone.

    A call that has begun is carried out to its end, whatever becomes of its stream. With room for one
    alone each is carried out where it is started, which is cheaper: for calls that never wait.
    """

    __slots__ = ("_ended", "_most", "_running", "_unbegun")

    def __init__(self, most: int) -> None:
        self._most = most
        self._running: dict[asyncio.Task[None], Keys | None] = {}
        self._ended: asyncio.Future[None] | None = None
        self._unbegun = False

    async def start(self, keys: Keys | None, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Starts a call as soon as there is room and nothing runs that shares a key with it."""
        if self._most == 1:
            await call()
            return
        while self._running and (len(self._running) >= self._most or self._meets(keys)):
            await self._one_ends()
        task = asyncio.get_running_loop().create_task(call())
        self._running[task] = keys
        task.add_done_callback(self._forget)
        self._unbegun = True

    async def begun(self) -> None:
        """Returns when every call has run as far as it can without waiting.

        So what comes behind a call that has nothing to wait for finds it done.
        """
        if self._unbegun:
            self._unbegun = False
            await asyncio.sleep(0)

    async def settled(self, keys: Keys | None = None) -> None:
        """Returns when no call with one of these keys is under way; None is all of them."""
        await self.begun()
        while self._meets(keys):
            await self._one_ends()

    def _meets(self, keys: Keys | None) -> bool:
        if keys is None:
            return bool(self._running)
        return any(other is None or not keys.isdisjoint(other) for other in self._running.values())

    async def _one_ends(self) -> None:
        if self._ended is None or self._ended.done():
            self._ended = asyncio.get_running_loop().create_future()
        # Several may wait for it, and one that is cancelled must not end it for the others.
        await asyncio.shield(self._ended)

    def _forget(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
        if not task.cancelled() and task.exception() is not None:
            _log.error("call_on_stream_failed", exc_info=task.exception())
