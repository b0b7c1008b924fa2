"""Tasks as a caller may see them: three views, each with all of the one before."""

from collections.abc import Iterator
from typing import TypeAlias

from google.protobuf.field_mask_pb2 import FieldMask

from durable_service.caller import Caller, worker_of
from durable_service.core.approvals import approvable
from durable_service.core.definition import Identity, TaskDefinition
from durable_service.core.model import ArtifactReference, TaskRecord
from durable_service.core.verdicts import conditions
from durable_service.planes.convert import (
    CONDITIONS,
    TASK_STATES,
    driver_message,
    lease_message,
    timestamp_of,
)
from durable_service.planes.refusals import role_not_allowed
from durable_service.principals import Role
from sealwork.durable.v1 import record_pb2, task_pb2

View: TypeAlias = task_pb2.TaskView.ValueType

_SHOWN_ATTEMPTS = 100


def checked_view(caller: Caller, view: View) -> View:
    """The view to show.

    Raises:
        ServiceError: ROLE_NOT_ALLOWED.
    """
    if view == task_pb2.TASK_VIEW_WORKER and caller.roles.isdisjoint({Role.WORKER, Role.OPERATOR}):
        raise role_not_allowed("the worker view is for workers and operators")
    return task_pb2.TASK_VIEW_PUBLIC if view == task_pb2.TASK_VIEW_UNSPECIFIED else view


def task_message(
    record: TaskRecord, caller: Caller, view: View, now_ms: int, mask: FieldMask | None = None
) -> task_pb2.Task:
    """A task at this instant of the store's clock."""
    shows_worker = view == task_pb2.TASK_VIEW_WORKER
    task = task_pb2.Task(
        task_id=record.key.task_id,
        state=TASK_STATES[record.state],
        revision=record.revision,
        create_time=timestamp_of(record.created_at_ms),
        update_time=timestamp_of(record.updated_at_ms),
        conditions=sorted(CONDITIONS[each] for each in conditions(record, now_ms)),
        definition_digest=record.digest,
        pending_approval_ids=sorted(_pending(record, None if shows_worker else caller.actor_id, now_ms)),
    )
    if view != task_pb2.TASK_VIEW_PUBLIC:
        _show_owner(task, record, now_ms)
    if shows_worker:
        _show_worker(task, record, now_ms)
    return _masked(task, mask)


def identity_message(identity: Identity) -> task_pb2.TaskIdentity:
    return task_pb2.TaskIdentity(
        tenant_id=identity.tenant_id,
        actor_id=identity.actor_id,
        run=task_pb2.TaskRun(
            session_id=identity.session_id,
            run_id=identity.run_id,
            root_run_id=identity.root_run_id,
            parent_run_id=identity.parent_run_id,
        ),
    )


def definition_message(definition: TaskDefinition) -> task_pb2.TaskDefinition:
    budget = definition.budget
    return task_pb2.TaskDefinition(
        manifest_hash=definition.manifest_hash,
        input_ref=definition.input_ref,
        policy_revision=definition.policy_revision,
        grant_refs=definition.grant_refs,
        driver=driver_message(definition.driver),
        input=None if definition.input is None else definition.input.encode(),
        budget=task_pb2.Budget(
            max_attempts=budget.max_attempts,
            max_tokens=budget.max_tokens,
            max_cost_micros=budget.max_cost_micros,
        ),
    )


def usage_message(record: TaskRecord) -> task_pb2.BudgetUsage:
    return task_pb2.BudgetUsage(
        attempts=len(record.attempts),
        reserved_tokens=record.reserved_tokens,
        reserved_cost_micros=record.reserved_cost_micros,
    )


def artifact_message(reference: ArtifactReference) -> record_pb2.ArtifactReference:
    return record_pb2.ArtifactReference(
        artifact_id=reference.id,
        digest=reference.digest,
        size_bytes=reference.size_bytes,
        media_type=reference.media_type,
        expire_time=timestamp_of(reference.expires_at_ms),
        create_time=timestamp_of(reference.created_at_ms),
    )


def _show_owner(task: task_pb2.Task, record: TaskRecord, now_ms: int) -> None:
    task.identity.CopyFrom(identity_message(record.definition.identity))
    task.definition.CopyFrom(definition_message(record.definition))
    task.usage.CopyFrom(usage_message(record))
    if record.result_ref is not None:
        task.result_ref = record.result_ref
    if record.failure is not None:
        task.failure = record.failure
    if record.cancel_reason is not None:
        task.cancel_reason = record.cancel_reason
    if record.not_before_ms is not None and record.not_before_ms > now_ms:
        task.not_before_time.CopyFrom(timestamp_of(record.not_before_ms))
    if record.start_deadline_ms is not None:
        task.start_deadline_time.CopyFrom(timestamp_of(record.start_deadline_ms))
    if record.finish_deadline_ms is not None:
        task.finish_deadline_time.CopyFrom(timestamp_of(record.finish_deadline_ms))
    task.artifacts.extend(
        artifact_message(each) for each in record.artifacts.values() if each.expires_at_ms > now_ms
    )
    task.latest_event_sequence = record.last_sequence


def _show_worker(task: task_pb2.Task, record: TaskRecord, now_ms: int) -> None:
    if record.lease is not None:
        task.lease.CopyFrom(lease_message(record.lease, now_ms))
    task.fence = record.fence
    task.attempts.extend(
        task_pb2.Attempt(
            attempt_id=attempt.id,
            worker_id=worker_of(attempt.worker_id),
            fence=attempt.fence,
            start_time=timestamp_of(attempt.started_at_ms),
        )
        for attempt in record.attempts[-_SHOWN_ATTEMPTS:]
    )
    task.open_action_ids.extend(sorted(action.id for action in record.open_actions()))
    task.extensions.extend(
        task_pb2.Extension(name=each.name, revision=each.revision, value=each.value.encode())
        for each in record.extensions.values()
    )


def _pending(record: TaskRecord, actor_id: str | None, now_ms: int) -> Iterator[str]:
    if approvable(record):
        for approval in record.pending_approvals(now_ms):
            if actor_id in {None, approval.actor_id}:
                yield approval.id


def _masked(task: task_pb2.Task, mask: FieldMask | None) -> task_pb2.Task:
    if mask is None or not mask.paths:
        return task
    shown = task_pb2.Task()
    mask.MergeMessage(task, shown)
    return shown
