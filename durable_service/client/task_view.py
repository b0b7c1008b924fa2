"""A task as a caller may see it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from durable_service.client.json_text import decode_json
from durable_service.client.times import duration_ms, milliseconds_of
from durable_service.core.canonical_json import JsonValue
from durable_service.core.definition import Budget, Driver
from durable_service.core.states import TERMINAL, TaskState
from sealwork.durable.v1 import lease_pb2, record_pb2, task_pb2


class Condition(StrEnum):
    """A fact about a task beside its state; several may hold at once."""

    LEASED = "leased"
    LEASE_EXPIRED = "lease-expired"
    RECOVERY_REQUIRED = "recovery-required"
    APPROVAL_PENDING = "approval-pending"
    APPROVAL_DECIDED = "approval-decided"
    BUDGET_EXHAUSTED = "budget-exhausted"
    NOT_BEFORE = "not-before"
    CLAIMABLE = "claimable"


STATES: Final = {state: task_pb2.TaskState.Value(f"TASK_STATE_{state.name}") for state in TaskState}
CONDITIONS: Final = {
    condition: task_pb2.TaskCondition.Value(f"TASK_CONDITION_{condition.name}") for condition in Condition
}
_STATE_OF: Final = {number: state for state, number in STATES.items()}
_CONDITION_OF: Final = {number: condition for condition, number in CONDITIONS.items()}


class UnknownStateError(Exception):
    """The service is newer than this client and told of a state that is not known here."""


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """Where a task stands after a call; `updated_at_ms` is by the store's clock."""

    task_id: str
    state: TaskState
    revision: int
    updated_at_ms: int

    @property
    def ended(self) -> bool:
        """Whether it will never change any more."""
        return self.state in TERMINAL


@dataclass(frozen=True, slots=True)
class HeldLease:
    """Who holds a task, as the service told; times in milliseconds."""

    worker_id: str
    fence: int
    remaining_ms: int
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What is used of a budget; cost in millionths of a currency unit."""

    attempts: int
    reserved_tokens: int
    reserved_cost_micros: int


@dataclass(frozen=True, slots=True)
class Artifact:
    """Bytes that are kept beside a task; times in epoch milliseconds."""

    id: str
    digest: str
    size_bytes: int
    media_type: str
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class Definition:
    """What was admitted. `input_json` is None when there is no inline input."""

    manifest_hash: str
    input_ref: str
    policy_revision: int
    grant_refs: tuple[str, ...]
    driver: Driver | None
    budget: Budget
    input_json: bytes | None

    @property
    def input(self) -> JsonValue:
        """The inline input as a new value; None also when there is none."""
        return None if self.input_json is None else decode_json(self.input_json)


@dataclass(frozen=True, slots=True)
class Task:
    """A task; what the view does not show is None or empty.

    Attributes:
        latest_event: Position of the newest event in the journal.
        fence: Of the newest lease.
    """

    id: str
    state: TaskState
    revision: int
    created_at_ms: int
    updated_at_ms: int
    conditions: frozenset[Condition]
    definition_digest: str
    pending_approval_ids: tuple[str, ...] = ()
    tenant_id: str = ""
    actor_id: str = ""
    session_id: str = ""
    run_id: str = ""
    definition: Definition | None = None
    usage: Usage | None = None
    result_ref: str | None = None
    failure: str | None = None
    cancel_reason: str | None = None
    not_before_ms: int | None = None
    artifacts: tuple[Artifact, ...] = ()
    latest_event: int = 0
    lease: HeldLease | None = None
    fence: int = 0
    open_action_ids: tuple[str, ...] = ()
    extensions: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether it will never change any more."""
        return self.state in TERMINAL

    @property
    def input(self) -> JsonValue:
        """The inline input; None when there is none or the view does not show it."""
        return None if self.definition is None else self.definition.input


def status_of(status: task_pb2.TaskStatus) -> TaskStatus:
    """Return what a status message tells."""
    return TaskStatus(
        status.task_id, state_of(status.state), status.revision, milliseconds_of(status.update_time)
    )


def state_of(number: task_pb2.TaskState.ValueType) -> TaskState:
    """Return the state with this number.

    Raises:
        UnknownStateError: It has none here.
    """
    state = _STATE_OF.get(number)
    if state is None:
        raise UnknownStateError(
            f"the service told of a task state {number}, which this version does not know"
        )
    return state


def task_of(task: task_pb2.Task) -> Task:
    """Return what a task message shows."""
    return Task(
        id=task.task_id,
        state=state_of(task.state),
        revision=task.revision,
        created_at_ms=milliseconds_of(task.create_time),
        updated_at_ms=milliseconds_of(task.update_time),
        conditions=frozenset(_CONDITION_OF[each] for each in task.conditions if each in _CONDITION_OF),
        definition_digest=task.definition_digest,
        pending_approval_ids=tuple(task.pending_approval_ids),
        tenant_id=task.identity.tenant_id,
        actor_id=task.identity.actor_id,
        session_id=task.identity.run.session_id,
        run_id=task.identity.run.run_id,
        definition=_definition_of(task.definition) if task.HasField("definition") else None,
        usage=usage_of(task.usage) if task.HasField("usage") else None,
        result_ref=task.result_ref if task.HasField("result_ref") else None,
        failure=task.failure if task.HasField("failure") else None,
        cancel_reason=task.cancel_reason if task.HasField("cancel_reason") else None,
        not_before_ms=milliseconds_of(task.not_before_time) if task.HasField("not_before_time") else None,
        artifacts=tuple(map(artifact_of, task.artifacts)),
        latest_event=task.latest_event_sequence,
        lease=_lease_of(task.lease) if task.HasField("lease") else None,
        fence=task.fence,
        open_action_ids=tuple(task.open_action_ids),
        extensions={each.name: decode_json(each.value) for each in task.extensions},
    )


def artifact_of(reference: record_pb2.ArtifactReference) -> Artifact:
    """Return what an artifact's message tells."""
    return Artifact(
        reference.artifact_id,
        reference.digest,
        reference.size_bytes,
        reference.media_type,
        milliseconds_of(reference.expire_time),
    )


def usage_of(usage: task_pb2.BudgetUsage) -> Usage:
    """Return what a usage message tells."""
    return Usage(usage.attempts, usage.reserved_tokens, usage.reserved_cost_micros)


def _definition_of(definition: task_pb2.TaskDefinition) -> Definition:
    has_driver = definition.HasField("driver")
    return Definition(
        manifest_hash=definition.manifest_hash,
        input_ref=definition.input_ref,
        policy_revision=definition.policy_revision,
        grant_refs=tuple(definition.grant_refs),
        driver=Driver(definition.driver.id, definition.driver.version) if has_driver else None,
        budget=Budget(
            definition.budget.max_attempts,
            definition.budget.max_tokens,
            definition.budget.max_cost_micros,
        ),
        input_json=definition.input if definition.HasField("input") else None,
    )


def _lease_of(lease: lease_pb2.Lease) -> HeldLease:
    return HeldLease(
        lease.worker_id, lease.fence, duration_ms(lease.remaining), milliseconds_of(lease.expire_time)
    )
