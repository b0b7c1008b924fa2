"""Looking after tasks that stand still: their connectors are asked what has happened, again and again."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Final

from durable_service.client.actions import Action
from durable_service.client.errors import DurableError
from durable_service.client.recovery import NotClaimed
from durable_service.client.task_view import Condition
from durable_service.client.tasks import TaskFilter, Tasks
from durable_service.core.definition import Driver
from durable_service.core.states import OPEN
from service_common.clocks import Clock
from service_common.deadlines import within

logger = logging.getLogger("sealwork.client")

Recover = Callable[[str], Awaitable[Sequence[Action] | NotClaimed]]

_SCAN_SECONDS: Final = 60.0
# Each attempt takes a lease and leaves entries in the journal: one that brings nothing is not repeated soon.
_AGAIN_SECONDS: Final = 15.0
_AGAIN_AT_MOST_SECONDS: Final = 3_600.0


class Recoverer:
    """Tries to settle the open outcomes of tasks of some drivers.

    Looking up what has happened repeats nothing. What the look-up does not settle stays as it is, for a
    person or for the next attempt.
    """

    def __init__(
        self, tasks: Tasks, recover: Recover, drivers: Sequence[Driver], *, clock: Clock, random: Random
    ) -> None:
        """Prepare.

        Args:
            tasks: Finds what stands still.
            recover: Settles what is open in one task.
            drivers: Whose tasks.
            clock: Times everything.
            random: Spreads the attempts of many workers.
        """
        self._tasks = tasks
        self._recover = recover
        self._drivers = drivers
        self._clock = clock
        self._random = random
        self._news = asyncio.Event()
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}

    def wake(self) -> None:
        """Look now: a task has just come to stand still."""
        self._news.set()

    async def run(self) -> None:
        """Look after them until cancelled."""
        while True:
            self._news.clear()
            try:
                await self._scan()
            except DurableError as error:
                logger.info("tasks that stand still could not be listed: %s", error)
            await self._pause()

    async def _scan(self) -> None:
        seen = set()
        for driver in self._drivers:
            which = TaskFilter(
                conditions=[Condition.RECOVERY_REQUIRED], driver_id=driver.id, driver_version=driver.version
            )
            async for task in self._tasks.list(which):
                seen.add(task.id)
                if self._clock.monotonic() >= self._not_before.get(task.id, float("-inf")):
                    await self._try(task.id)
        for task_id in self._failures.keys() - seen:
            self._forget(task_id)

    async def _try(self, task_id: str) -> None:
        try:
            outcome = await self._recover(task_id)
        except Exception as error:  # noqa: BLE001 - whatever a look-up raises
            # Without the text: it might quote what the task works on.
            logger.warning("the task %s could not be recovered: %s", task_id, type(error).__name__)
        else:
            if not isinstance(outcome, NotClaimed) and all(each.state not in OPEN for each in outcome):
                logger.info("what was open in task %s is settled", task_id)
                self._forget(task_id)
                return
        failures = self._failures[task_id] = self._failures.get(task_id, 0) + 1
        pause = min(_AGAIN_AT_MOST_SECONDS, _AGAIN_SECONDS * 2 ** min(failures - 1, 16))
        self._not_before[task_id] = self._clock.monotonic() + pause * self._random.uniform(0.5, 1)

    def _forget(self, task_id: str) -> None:
        self._failures.pop(task_id, None)
        self._not_before.pop(task_id, None)

    async def _pause(self) -> None:
        now = self._clock.monotonic()
        due = min(self._not_before.values(), default=float("inf"))
        pause = min(_SCAN_SECONDS * self._random.uniform(0.5, 1), max(1.0, due - now))
        with contextlib.suppress(TimeoutError):
            await within(self._clock, pause, _set(self._news))


async def _set(event: asyncio.Event) -> None:
    await event.wait()
