"""Tasks as their owners use them: create, read, cancel, wait, watch."""

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from durable_service.client.actions import STATES as ACTION_STATES
from durable_service.client.actions import Action, action_of
from durable_service.client.calls import Calls
from durable_service.client.early_answers import EarlyAnswers
from durable_service.client.json_text import encode_json
from durable_service.client.methods import (
    CANCEL_TASK,
    CREATE_TASK,
    GET_TASK,
    LIST_ACTIONS,
    LIST_TASKS,
    WAIT_TASK,
    WATCH_TASKS,
)
from durable_service.client.task_view import (
    CONDITIONS,
    STATES,
    Condition,
    Task,
    TaskStatus,
    status_of,
    task_of,
)
from durable_service.client.times import duration_of
from durable_service.core.canonical_json import JsonValue
from durable_service.core.definition import Budget, Driver
from durable_service.core.states import ActionState, TaskState
from sealwork.durable.v1 import action_service_pb2, task_pb2
from sealwork.durable.v1 import task_service_pb2 as pb
from service_common.unary_calls import CALL_SECONDS

WAIT_MS: Final = 10_000
_PAGE: Final = 100


class View(Enum):
    """How much of a task to show; each includes the ones before."""

    PUBLIC = task_pb2.TASK_VIEW_PUBLIC
    OWNER = task_pb2.TASK_VIEW_OWNER
    WORKER = task_pb2.TASK_VIEW_WORKER


class NoInput(Enum):
    """Stands for no inline input, which is another definition than the input null."""

    NO_INPUT = "no input"


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to admit.

    Attributes:
        id: Unique in the tenant.
        driver: The handler for it. Without one it can be claimed by its id only.
        input: Inline JSON.
        input_ref: Where the retained input is kept; an identifier.
        manifest_hash: What code and settings it may run with; the service does not interpret it.
        session_id, run_id, root_run_id, parent_run_id: Relate it to others; empty means the task's id.
        start_within_ms, finish_within_ms: Cancellation is requested when these pass; None means never.
        delay_ms: It cannot be claimed before.
        extensions: First values of named slots, JSON.
    """

    id: str
    driver: Driver | None = None
    input: "JsonValue | NoInput" = NoInput.NO_INPUT
    input_ref: str = "inline"
    manifest_hash: str = "none"
    policy_revision: int = 0
    grant_refs: tuple[str, ...] = ()
    budget: Budget = field(default_factory=Budget)
    session_id: str = ""
    run_id: str = ""
    root_run_id: str = ""
    parent_run_id: str | None = None
    start_within_ms: int | None = None
    finish_within_ms: int | None = None
    delay_ms: int = 0
    extensions: Mapping[str, JsonValue] = field(default_factory=dict)

    def to_request(self) -> pb.CreateTaskRequest:
        """Return the request that admits it.

        Raises:
            ValueError: The input or an extension is not JSON.
        """
        definition = task_pb2.TaskDefinition(
            manifest_hash=self.manifest_hash,
            input_ref=self.input_ref,
            policy_revision=self.policy_revision,
            grant_refs=self.grant_refs,
            budget=task_pb2.Budget(
                max_attempts=self.budget.max_attempts,
                max_tokens=self.budget.max_tokens,
                max_cost_micros=self.budget.max_cost_micros,
            ),
        )
        if self.driver is not None:
            definition.driver.CopyFrom(task_pb2.DriverRef(id=self.driver.id, version=self.driver.version))
        if self.input is not NoInput.NO_INPUT:
            definition.input = encode_json(self.input)
        return self._within_limits(
            pb.CreateTaskRequest(
                task_id=self.id,
                run=self._run(),
                definition=definition,
                extensions=[
                    pb.NewExtension(name=name, value=encode_json(value))
                    for name, value in self.extensions.items()
                ],
            )
        )

    def _run(self) -> task_pb2.TaskRun:
        run_id = self.run_id or self.id
        run = task_pb2.TaskRun(
            session_id=self.session_id or self.id, run_id=run_id, root_run_id=self.root_run_id or run_id
        )
        if self.parent_run_id is not None:
            run.parent_run_id = self.parent_run_id
        return run

    def _within_limits(self, request: pb.CreateTaskRequest) -> pb.CreateTaskRequest:
        if self.start_within_ms is not None:
            request.start_within.CopyFrom(duration_of(self.start_within_ms))
        if self.finish_within_ms is not None:
            request.finish_within.CopyFrom(duration_of(self.finish_within_ms))
        if self.delay_ms:
            request.delay.CopyFrom(duration_of(self.delay_ms))
        return request


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks; everything that is given has to hold."""

    states: Collection[TaskState] = ()
    conditions: Collection[Condition] = ()
    driver_id: str = ""
    driver_version: int = 0
    session_id: str = ""
    root_run_id: str = ""

    def to_proto(self) -> task_pb2.TaskFilter:
        """Return its message."""
        message = task_pb2.TaskFilter(
            states=[STATES[each] for each in self.states],
            conditions=[CONDITIONS[each] for each in self.conditions],
            session_id=self.session_id,
            root_run_id=self.root_run_id,
        )
        if self.driver_id:
            message.driver.CopyFrom(task_pb2.DriverRef(id=self.driver_id, version=self.driver_version))
        return message


class Tasks:
    """The tasks that one principal may see. Each method raises `DurableError` when the service refuses."""

    def __init__(self, calls: Calls) -> None:
        """Use these calls."""
        self._calls = calls

    async def create(self, task: NewTask) -> tuple[Task, bool]:
        """Admit a task; returns it, and whether it is new. A repeat of the same definition is not."""
        answer = await self._calls.call(CREATE_TASK, task.to_request())
        return task_of(answer.task), answer.created

    async def get(self, task_id: str, view: View = View.OWNER) -> Task:
        """Read one task."""
        request = pb.GetTaskRequest(task_id=task_id, view=view.value)
        return task_of((await self._calls.call(GET_TASK, request)).task)

    async def list(
        self, which: TaskFilter | None = None, *, view: View = View.PUBLIC, limit: int | None = None
    ) -> AsyncIterator[Task]:
        """Yield tasks, those that were created last first, page by page."""
        wanted = (which or TaskFilter()).to_proto()
        token, left = "", float("inf") if limit is None else limit
        while left > 0:
            size = int(min(_PAGE, left))
            request = pb.ListTasksRequest(filter=wanted, view=view.value, page_size=size, page_token=token)
            page = await self._calls.call(LIST_TASKS, request)
            for task in page.tasks:
                yield task_of(task)
            left -= len(page.tasks)
            token = page.next_page_token
            if not token:
                return

    async def actions(
        self, task_id: str, states: Collection[ActionState] = (), *, include_args: bool = False
    ) -> AsyncIterator[Action]:
        """Yield the actions of a task in the order in which they were prepared."""
        request = action_service_pb2.ListActionsRequest(
            task_id=task_id,
            states=[ACTION_STATES[each] for each in states],
            include_args=include_args,
            page_size=_PAGE,
        )
        while True:
            page = await self._calls.call(LIST_ACTIONS, request)
            for action in page.actions:
                yield action_of(action)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                return

    async def cancel(self, task_id: str, reason: str = "") -> TaskStatus:
        """Ask for a task to be cancelled, and return where it stands then; see `wait` for its end."""
        request = pb.CancelTaskRequest(task_id=task_id, reason=reason)
        return status_of((await self._calls.call(CANCEL_TASK, request)).status)

    async def wait(
        self,
        task_id: str,
        *,
        or_approval: bool = False,
        view: View = View.OWNER,
        at_most_ms: int | None = None,
    ) -> tuple[Task, bool]:
        """Wait for a task to end; returns it, and whether it has.

        Args:
            task_id: The task.
            or_approval: An approval that waits is enough.
            view: How much of it to return.
            at_most_ms: Give up after about that many milliseconds; None waits for ever.
        """
        condition = pb.WAIT_CONDITION_ENDED_OR_APPROVAL if or_approval else pb.WAIT_CONDITION_ENDED
        early, clock = EarlyAnswers(self._calls.random), self._calls.clock
        end = float("inf") if at_most_ms is None else clock.monotonic() + at_most_ms / 1000
        while True:
            asked_at = clock.monotonic()
            span = round(max(0.0, min(float(WAIT_MS), (end - asked_at) * 1000)))
            request = pb.WaitTaskRequest(
                task_id=task_id, condition=condition, wait=duration_of(span), view=view.value
            )
            answer = await self._calls.call(WAIT_TASK, request, timeout=CALL_SECONDS + span / 1000)
            answered_at = clock.monotonic()
            if answer.met or answered_at >= end:
                return task_of(answer.task), answer.met
            pause = early.pause(span / 1000, answered_at - asked_at)
            if pause:
                await clock.sleep(min(pause, end - answered_at))

    async def watch(self, which: TaskFilter | None = None) -> AsyncIterator[Task]:
        """Yield tasks as they change, from now on; a lost stream is taken up again where it was.

        Raises:
            DurableError: It was refused.
        """
        wanted, token = (which or TaskFilter()).to_proto(), ""

        def request() -> pb.WatchTasksRequest:
            return pb.WatchTasksRequest(filter=wanted, resume_token=token)

        async for frame in self._calls.watch(WATCH_TASKS, request):
            for task in frame.batch.tasks:
                yield task_of(task)
            token = frame.resume_token or token
