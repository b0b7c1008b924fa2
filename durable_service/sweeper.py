"""Real time for tasks: what is over is written down when it is due, not when somebody asks."""

import asyncio
import sys
from typing import Final

import structlog

from durable_service.core.errors import DomainError, Reason
from durable_service.core.lapses import due_at_ms, lapse
from durable_service.store.base import TaskChange, TaskStore
from service_common.clocks import Clock
from service_common.deadlines import within

_log: Final = structlog.get_logger(__name__)

_AT_ONCE: Final = 100
# Every change says when the task is due next, so this is for what another process has written.
_LONGEST_WAIT_MS: Final = 5_000
_SHORTEST_WAIT_MS: Final = 1
_AFTER_FAILURE_MS: Final = 1_000
_NEVER_MS: Final = sys.maxsize


class Sweeper:
    """Lets time pass in the store."""

    def __init__(self, store: TaskStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._next_ms = 0
        self._sooner = asyncio.Event()
        self._failing = False

    def note(self, change: TaskChange) -> None:
        """A task has changed, and may be due sooner than all others."""
        at_ms = None if change.after is None else due_at_ms(change.after)
        if at_ms is not None and at_ms < self._next_ms:
            self._sooner.set()

    async def run(self) -> None:
        """Sweeps until cancelled."""
        while True:
            self._sooner.clear()
            # What changes during the turn may have been missed by its look at what is next: it is sooner.
            self._next_ms = _NEVER_MS
            wait_ms = await self._turn()
            try:
                await within(self._clock, wait_ms / 1000, self._sooner.wait())
            except TimeoutError:
                continue

    async def _turn(self) -> int:
        """Writes down what is over; how long nothing will be, in milliseconds."""
        try:
            now_ms, due_ms = await self._sweep_and_look()
            if due_ms is not None and due_ms <= now_ms:
                # It has become due meanwhile.
                now_ms, due_ms = await self._sweep_and_look()
        except Exception as error:  # noqa: BLE001 - the next turn tries again, and every command counts time as well
            self._next_ms = 0
            if not self._failing:
                self._failing = True
                _log.error("sweep_failed", exc_info=error)
            return _AFTER_FAILURE_MS
        if self._failing:
            self._failing = False
            _log.info("sweep_works_again")
        longest_ms = now_ms + _LONGEST_WAIT_MS
        self._next_ms = longest_ms if due_ms is None else min(due_ms, longest_ms)
        return max(_SHORTEST_WAIT_MS, self._next_ms - now_ms)

    async def _sweep_and_look(self) -> tuple[int, int | None]:
        """Writes down what is over; the time now, and when something is due next."""
        await self._sweep()
        due_ms = await self._store.next_due_ms()
        # The time last: a wait that is reckoned from before a slow read would be too long.
        return await self._store.now_ms(), due_ms

    async def _sweep(self) -> None:
        while keys := await self._store.due(_AT_ONCE):
            written = 0
            for key in keys:
                try:
                    written += (await self._store.update(key, lapse)).written
                except DomainError as error:
                    # It was purged since.
                    if error.reason is not Reason.TASK_NOT_FOUND:
                        raise
            if not written:
                return
