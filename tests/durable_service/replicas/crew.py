"""Those who use a fleet: submitters, an approver and workers."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

from durable_service.client import (
    ActionInput,
    ActionRejectedError,
    ApprovalNeed,
    Budget,
    Client,
    Driver,
    DurableError,
    NewTask,
    RunReport,
    TaskContext,
    TaskState,
    Worker,
)
from durable_service.client.approvals import ApprovalState
from service_common.unary_calls import may_help_again
from tests.durable_service.replicas.fleet import Fleet
from tests.durable_service.replicas.world import World
from tests.harness.waiting import eventually

Result = TypeVar("Result")

APPROVAL_MS: Final = 600_000
_INSISTING_SECONDS: Final = 90


async def insist(call: Callable[[], Awaitable[Result]]) -> Result:
    """The answer, however often the way to it is lost; no other refusal should be heard."""

    async def answered() -> tuple[Result] | None:
        try:
            return (await call(),)
        except DurableError as error:
            if not may_help_again(error):
                raise
            return None

    return (await eventually(answered, _INSISTING_SECONDS, "an answer"))[0]


@dataclass
class Crew:
    """All of them, and what came of each task.

    Attributes:
        created: Ids of the tasks that were confirmed.
        ended: By task, the state that its submitter was told.
        reports: How each run of a worker has ended.
        on_created: Told of each confirmed task.
    """

    fleet: Fleet
    world: World = field(default_factory=World)
    created: list[str] = field(default_factory=list)
    ended: dict[str, TaskState] = field(default_factory=dict)
    reports: list[RunReport] = field(default_factory=list)
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    on_created: Callable[[str], object] = lambda _: None

    async def submit(self, lane: int) -> None:
        """One task after the other; of some it wants an approval, and some it cancels."""
        alice = self.fleet.client("alice")
        number = 0
        while not self.enough.is_set():
            number += 1
            wish = ("plain", "gated", "plain", "cancel")[number % 4]
            await self._one(alice, f"{wish}-{lane}-{number}")

    async def begin(self, saw_an_end: Callable[[], bool]) -> None:
        """One task after the other comes to nothing, until whoever is to see every end has seen one."""
        alice = self.fleet.client("alice")
        numbers = itertools.count(1)

        async def seen() -> bool:
            await self._one(alice, f"cancel-first-{next(numbers)}")
            return saw_an_end()

        await eventually(seen, 60, "the end of a task to be seen")

    async def _one(self, alice: Client, task_id: str) -> None:
        new = NewTask(task_id, Driver("work", 1), input={"n": 1}, budget=Budget(100, 100, 100))
        await insist(lambda: alice.tasks.create(new))
        self.created.append(task_id)
        self.on_created(task_id)
        if task_id.startswith("cancel"):
            with suppress(_AlreadyEndedError):
                await insist(lambda: _cancel(alice, task_id))
        task, met = await insist(lambda: alice.tasks.wait(task_id))
        assert met
        assert task.state is not None
        self.ended[task_id] = task.state

    async def approve(self) -> None:
        """Says yes to whatever waits, until cancelled."""
        bob = self.fleet.client("bob")
        while True:
            with suppress(DurableError):
                async for approval in bob.approvals.watch():
                    if approval.state is ApprovalState.PENDING:
                        await insist(lambda which=approval: bob.approvals.decide(which, approved=True))  # type: ignore[misc]

    def worker(self, number: int) -> Worker:
        return Worker(
            self.fleet.client("worker"),
            {"work@1": self._handle},
            worker_id=f"worker-{number}",
            slots=4,
            connectors=[self.world],
            on_end=self.reports.append,
        )

    async def _handle(self, context: TaskContext) -> str:
        await context.reserve(3, 5, reservation_id="all")
        await self._effect(context, ActionInput("plain", "world", {"n": 1}))
        if context.task.id.startswith("gated"):
            need = ApprovalNeed("bob", time.time_ns() // 1_000_000 + APPROVAL_MS)
            with suppress(ActionRejectedError):
                await self._effect(context, ActionInput("gated", "world", {"n": 2}, need))
        await context.records.checkpoint("half", {"step": 1})
        await context.records.append("half.done", {"by": "handler"}, event_id="half")
        return "result:task"

    async def _effect(self, context: TaskContext, wanted: ActionInput) -> None:
        result = await context.execute(wanted, self.world)
        # The worker was told that it is written down: from here on it must never be another one.
        before = self.world.confirmed.setdefault(f"{context.task.id} {wanted.action_id}", result)
        assert before == result


class _AlreadyEndedError(Exception):
    """There was nothing left to cancel."""


async def _cancel(alice: Client, task_id: str) -> None:
    try:
        await alice.tasks.cancel(task_id)
    except DurableError as error:
        if error.reason == "TASK_TERMINAL":
            raise _AlreadyEndedError from None
        raise
