"""Tasks as their owners see them: create, read, list, cancel, wait."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Final

from google.protobuf.field_mask_pb2 import FieldMask

from durable_service import audit
from durable_service.admission import Operation, facts_of_creation
from durable_service.caller import Caller, for_caller, visible
from durable_service.core.admission import Created, TaskCreation
from durable_service.core.approvals import approvable
from durable_service.core.errors import DomainError, Reason
from durable_service.core.model import TaskRecord
from durable_service.core.outcomes import cancel
from durable_service.core.states import TERMINAL
from durable_service.core.step import Decision
from durable_service.planes.convert import milliseconds_of_duration, status_message
from durable_service.planes.page_tokens import PageTokens
from durable_service.planes.parts import Parts
from durable_service.planes.task_creation import creation_of, named_as_requested
from durable_service.planes.task_filters import TaskSelection, selection_of
from durable_service.planes.task_messages import checked_view, task_message
from durable_service.planes.validation import Checks, check_task_id
from durable_service.store.base import PageMark
from sealwork.durable.v1 import task_pb2, task_service_pb2
from service_common.deadlines import within

# A page is cut at about this size, so that no answer meets the limit of a message.
PAGE_BYTES: Final = 1_048_576
# A filter that the store cannot answer by itself costs no more than this for a page.
_MOST_LOOKED_AT: Final = 2_000
_AT_ONCE: Final = 200
_LIST_VIEWS: Final = (
    task_pb2.TASK_VIEW_UNSPECIFIED,
    task_pb2.TASK_VIEW_PUBLIC,
    task_pb2.TASK_VIEW_OWNER,
)


class TaskCalls:
    """The unary calls of TaskService."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._store = parts.store

    async def create_task(
        self, caller: Caller, request: task_service_pb2.CreateTaskRequest
    ) -> task_service_pb2.CreateTaskResponse:
        now_ms = await self._store.now_ms()
        creation = creation_of(caller, request, now_ms)
        try:
            decision = await self._create(caller, creation)
        except DomainError as error:
            raise await self._without_others(caller, creation, error) from None
        task = task_message(decision.record, caller, task_pb2.TASK_VIEW_PUBLIC, now_ms)
        return task_service_pb2.CreateTaskResponse(task=task, created=decision.answer.created)

    async def _create(self, caller: Caller, creation: TaskCreation) -> Decision[Created]:
        desk = self._parts.admission
        # A repeat admits nothing anew: it is answered whatever the policy says by now.
        if not desk.asks or await self._store.get(creation.definition.key) is not None:
            return await self._store.create(creation)
        with self._parts.open_tasks.entering(caller.tenant_id) as others:
            facts = facts_of_creation(creation, others)
            decision_id = await desk.admit(Operation.CREATE, caller, facts)
            return await self._store.create(replace(creation, admission_id=decision_id))

    async def _without_others(
        self, caller: Caller, creation: TaskCreation, error: DomainError
    ) -> DomainError:
        """The refusal, without the digest of a task that is another actor's."""
        if error.reason is not Reason.DEFINITION_MISMATCH:
            return named_as_requested(error)
        record = await self._store.get(creation.definition.key)
        if record is not None and caller.sees(record):
            return error
        shown = {name: text for name, text in error.details.items() if name != "existing_digest"}
        return DomainError(error.reason, error.message, shown)

    async def get_task(
        self, caller: Caller, request: task_service_pb2.GetTaskRequest
    ) -> task_service_pb2.GetTaskResponse:
        _check_shown(request.task_id, request.view, request.read_mask)
        view = checked_view(caller, request.view)
        record = visible(caller, await self._store.get(caller.key(request.task_id)))
        now_ms = await self._store.now_ms()
        return task_service_pb2.GetTaskResponse(
            task=task_message(record, caller, view, now_ms, request.read_mask)
        )

    async def list_tasks(
        self, caller: Caller, request: task_service_pb2.ListTasksRequest
    ) -> task_service_pb2.ListTasksResponse:
        checks = Checks()
        size = checks.page(request.page_size)
        checks.known("view", request.view, _LIST_VIEWS)
        checks.mask("read_mask", request.read_mask)
        checks.raise_faults()
        selection = selection_of(caller, request.filter)
        tokens = PageTokens("ListTasks", caller, request.filter)
        mark = tokens.mark(request.page_token, int, str, str)
        # Asked before the first page is read, and carried through the others.
        resume = str(mark[2]) if mark else await self._resume_token(caller, request.filter)
        response = task_service_pb2.ListTasksResponse(resume_token=resume)
        after = PageMark(int(mark[0]), str(mark[1])) if mark else None
        more = await self._fill(response, caller, request, selection, size, after)
        if more is not None:
            response.next_page_token = tokens.token(more.created_at_ms, more.task_id, resume)
        return response

    async def cancel_task(
        self, caller: Caller, request: task_service_pb2.CancelTaskRequest
    ) -> task_service_pb2.CancelTaskResponse:
        check_task_id(request.task_id)
        decision = await self._store.update(
            caller.key(request.task_id),
            for_caller(caller, lambda record, now_ms: cancel(record, request.reason, now_ms)),
        )
        if decision.answer.requested:
            audit.note(caller, "task_cancelled", decision.record)
        return task_service_pb2.CancelTaskResponse(status=status_message(decision.record))

    async def wait_task(
        self, caller: Caller, request: task_service_pb2.WaitTaskRequest
    ) -> task_service_pb2.WaitTaskResponse:
        checks = Checks()
        checks.known("condition", request.condition, task_service_pb2.WaitCondition.values())
        checks.wait("wait", request.wait)
        checks.raise_faults()
        _check_shown(request.task_id, request.view, request.read_mask)
        view = checked_view(caller, request.view)
        record, met = await self._wait(caller, request)
        now_ms = await self._store.now_ms()
        return task_service_pb2.WaitTaskResponse(
            task=task_message(record, caller, view, now_ms, request.read_mask), met=met
        )

    async def _wait(
        self, caller: Caller, request: task_service_pb2.WaitTaskRequest
    ) -> tuple[TaskRecord, bool]:
        key = caller.key(request.task_id)
        clock = self._parts.clock
        end = clock.monotonic() + milliseconds_of_duration(request.wait) / 1000
        changed = asyncio.Event()
        # Listening before looking: what comes in between is not missed.
        stop = self._parts.news.of_task(key, lambda _: changed.set())
        try:
            with self._parts.watches.ending(changed.set):
                while True:
                    changed.clear()
                    record = visible(caller, await self._store.get(key))
                    met = await self._is_met(record, request)
                    remaining = end - clock.monotonic()
                    if met or remaining <= 0 or self._parts.watches.leaving.is_set():
                        return record, met
                    with suppress(TimeoutError):
                        await within(clock, remaining, changed.wait())
        finally:
            stop()

    async def _is_met(self, record: TaskRecord, request: task_service_pb2.WaitTaskRequest) -> bool:
        if request.condition == task_service_pb2.WAIT_CONDITION_CHANGED:
            return record.revision > request.after_revision
        if record.state in TERMINAL:
            return True
        if request.condition != task_service_pb2.WAIT_CONDITION_ENDED_OR_APPROVAL:
            return False
        return approvable(record) and any(record.pending_approvals(await self._store.now_ms()))

    async def _fill(
        self,
        response: task_service_pb2.ListTasksResponse,
        caller: Caller,
        request: task_service_pb2.ListTasksRequest,
        selection: TaskSelection,
        size: int,
        after: PageMark | None,
    ) -> PageMark | None:
        """Adds tasks to a page, and returns where the next one begins; None when there is none."""
        view = checked_view(caller, request.view)
        now_ms = await self._store.now_ms()
        looked_at, room = 0, PAGE_BYTES
        while looked_at < _MOST_LOOKED_AT:
            limit = min(_AT_ONCE, size - len(response.tasks) + 1)
            records = await self._store.list_tasks(selection.query, after, limit)
            for record in records:
                if selection.takes(record, now_ms):
                    task = task_message(record, caller, view, now_ms, request.read_mask)
                    room -= task.ByteSize()
                    if len(response.tasks) == size or (room < 0 and response.tasks):
                        return after
                    response.tasks.append(task)
                after = PageMark(record.created_at_ms, record.key.task_id)
            if len(records) < limit:
                return None
            looked_at += len(records)
        return after

    async def _resume_token(self, caller: Caller, task_filter: task_pb2.TaskFilter) -> str:
        latest = (await self._store.changes(caller.tenant_id, 0, 0)).latest
        return watch_tokens(caller, task_filter).token(self._store.incarnation, latest)


def watch_tokens(caller: Caller, task_filter: task_pb2.TaskFilter) -> PageTokens:
    """The resume tokens of a watch with this filter."""
    return PageTokens("WatchTasks", caller, task_filter)


def _check_shown(task_id: str, view: task_pb2.TaskView.ValueType, mask: FieldMask) -> None:
    checks = Checks()
    checks.identifier("task_id", task_id)
    checks.known("view", view, task_pb2.TaskView.values())
    checks.mask("read_mask", mask)
    checks.raise_faults()
