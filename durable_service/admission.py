"""What an operator's policy is asked before work goes on, and what it may answer.

The service never branches on why an answer is what it is: a reason is for the operator's log alone.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from durable_service.caller import Caller
from durable_service.core.admission import TaskCreation
from durable_service.core.definition import Budget, Driver, TaskDefinition
from durable_service.core.model import TaskRecord


class Operation(StrEnum):
    """What a caller is about to do.

    A claim is asked about twice: before it, and again right after it about the task as it was claimed.
    """

    CREATE = "create"
    CLAIM = "claim"
    RECOVER = "recover"
    BEGIN_DISPATCH = "begin_dispatch"
    DECIDE = "decide"
    WAKE = "wake"
    EXTEND = "extend"


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """A task as the policy sees it: nothing of what it works on.

    Attributes:
        extensions: the names that are asked for, when it is created or an extension is written.
        open_tasks: of the tenant, without this one; counted when a task is created.
    """

    tenant_id: str
    actor_id: str
    task_id: str
    driver: Driver | None
    manifest_hash: str
    policy_revision: int
    budget: Budget
    extensions: frozenset[str] = frozenset()
    open_tasks: int = 0


@dataclass(frozen=True, slots=True)
class Admitted:
    """Go on. The id names the decision in the journal of the task."""

    decision_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Do not; `why` is for the operator's log, never for the caller."""

    why: str


@dataclass(frozen=True, slots=True)
class OverQuota:
    """Not now: the tenant has its most open tasks."""

    most: int


Answer: TypeAlias = Admitted | Refused | OverQuota


class Admission(Protocol):
    """The operator's policy. One that raises, or does not answer in time, refuses for the time being."""

    async def decide(self, operation: Operation, caller: Caller | None, task: TaskFacts) -> Answer:
        """Whether the operation may go on; nobody calls when a task wakes."""


def facts_of_creation(creation: TaskCreation, open_tasks: int) -> TaskFacts:
    """The task that is asked for."""
    return _facts(creation.definition, frozenset(creation.extensions), open_tasks)


def facts_of(record: TaskRecord, *extensions: str) -> TaskFacts:
    """A task that is there, and the extensions that are to be written."""
    return _facts(record.definition, frozenset(extensions))


def _facts(definition: TaskDefinition, extensions: frozenset[str], open_tasks: int = 0) -> TaskFacts:
    return TaskFacts(
        definition.identity.tenant_id,
        definition.identity.actor_id,
        definition.id,
        definition.driver,
        definition.manifest_hash,
        definition.policy_revision,
        definition.budget,
        extensions,
        open_tasks,
    )
