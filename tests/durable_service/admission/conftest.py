"""A service with a policy that the test speaks for."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from durable_service.admission import Admitted, Answer, Operation, TaskFacts
from durable_service.caller import Caller
from tests.durable_service.durable_fixture import DurableUnderTest, serving


@dataclass
class PlayedPolicy:
    """Answers what the test says, and keeps what it was asked."""

    answer: Callable[[Operation, TaskFacts], Answer] = lambda _operation, _task: Admitted("decision-1")
    silent: bool = False
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    heard: defaultdict[Operation, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    async def decide(self, operation: Operation, caller: Caller | None, task: TaskFacts) -> Answer:
        self.asked.append((operation, "" if caller is None else caller.id, task.task_id))
        self.heard[operation].set()
        if self.silent:
            await asyncio.Event().wait()
        return self.answer(operation, task)


@pytest.fixture
def policy() -> PlayedPolicy:
    return PlayedPolicy()


@pytest.fixture(params=["memory", "sqlite"])
async def service(
    request: pytest.FixtureRequest, tmp_path: Path, policy: PlayedPolicy
) -> AsyncIterator[DurableUnderTest]:
    database = tmp_path / "tasks.db" if request.param == "sqlite" else None
    async with serving(database=database, admission=policy) as running:
        yield running
