"""How often a task that stands still is tried."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

from durable_service.client.actions import Action, action_of
from durable_service.client.errors import DurableError
from durable_service.client.recoverer import Recoverer
from durable_service.client.recovery import NotClaimed
from durable_service.core.definition import Driver
from service_common.clocks import ManualClock
from tests.durable_service.client.played_service import action, refusal


class NoJitter(Random):
    def uniform(self, a: float, b: float) -> float:
        return b


class Still:
    """Tasks that stand still, and what an attempt brings."""

    def __init__(self, *outcomes: Any) -> None:
        self.clock = ManualClock()
        self.outcomes = list(outcomes)
        self.standing = ["t-1"]
        self.attempts: list[float] = []
        self.broken = False
        self.recoverer = Recoverer(
            self,  # type: ignore[arg-type]
            self.recover,
            [Driver("mail", 1)],
            clock=self.clock,
            random=NoJitter(),
        )

    async def list(self, which: Any) -> AsyncIterator[Any]:
        assert (which.driver_id, which.driver_version) == ("mail", 1)
        if self.broken:
            raise DurableError(refusal("STORE_UNAVAILABLE"))
        for task_id in tuple(self.standing):
            yield SimpleNamespace(id=task_id)

    async def recover(self, task_id: str) -> Sequence[Action] | NotClaimed:
        self.attempts.append(self.clock.monotonic())
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    async def run(self, seconds: int) -> Sequence[float]:
        """Lets time pass; the instants of the attempts."""
        running = asyncio.ensure_future(self.recoverer.run())
        await self.clock.advance_async(seconds * 1000)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return self.attempts


OPEN = [action_of(action("UNKNOWN"))]
SETTLED = [action_of(action("CONFIRMED"))]


async def test_what_brings_nothing_is_tried_ever_more_seldom() -> None:
    assert await Still(OPEN).run(240) == [0.0, 15.0, 45.0, 105.0, 225.0]


async def test_a_look_up_that_raises_is_an_attempt_that_brings_nothing() -> None:
    assert await Still(RuntimeError("no route")).run(50) == [0.0, 15.0, 45.0]


async def test_a_task_that_somebody_else_has_is_tried_later() -> None:
    assert await Still(NotClaimed("t-1", "leased")).run(20) == [0.0, 15.0]


async def test_what_is_settled_is_forgotten_and_tried_at_once_when_it_stands_still_again() -> None:
    assert await Still(OPEN, SETTLED, OPEN).run(100) == [0.0, 15.0, 75.0, 90.0]


async def test_news_are_looked_at_at_once() -> None:
    still = Still(SETTLED)
    still.standing = []
    running = asyncio.ensure_future(still.recoverer.run())
    await still.clock.advance_async(1_000)
    still.standing = ["t-1"]
    still.recoverer.wake()
    await still.clock.advance_async(1)
    assert still.attempts == [1.0]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_service_that_does_not_answer_is_asked_again() -> None:
    still = Still(OPEN)
    still.broken = True
    running = asyncio.ensure_future(still.recoverer.run())
    await still.clock.advance_async(1_000)
    still.broken = False
    await still.clock.advance_async(60_000)
    assert still.attempts[0] == 60.0
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
