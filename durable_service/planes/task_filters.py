"""Which tasks a list or a watch is about, within what its caller may see."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from durable_service.caller import Caller
from durable_service.core.availability import Queue
from durable_service.core.model import TaskRecord
from durable_service.core.verdicts import Condition, conditions
from durable_service.planes.convert import CONDITION_OF, TASK_STATE_OF, milliseconds_of
from durable_service.planes.validation import Checks
from durable_service.principals import Role
from durable_service.store.base import TaskQuery
from durable_service.store.filters import in_query
from sealwork.durable.v1 import task_pb2

_MOST_VALUES = 8
_INSTANTS = ("created_from", "created_before", "updated_from", "updated_before")
# Whoever is in one of these conditions waits in that queue, so a list need not look at the others.
_QUEUES = {Condition.CLAIMABLE: Queue.WORK, Condition.RECOVERY_REQUIRED: Queue.RECOVERY}


@dataclass(frozen=True, slots=True)
class TaskSelection:
    """A question to the store, and what it cannot be asked."""

    query: TaskQuery
    conditions: frozenset[Condition]
    sees: Callable[[TaskRecord], bool]

    def takes(self, record: TaskRecord, now_ms: int) -> bool:
        """Whether a task is one of these at this instant."""
        return self.sees(record) and in_query(record, self.query) and self.holds(record, now_ms)

    def holds(self, record: TaskRecord, now_ms: int) -> bool:
        """Whether a task has all the conditions."""
        return not self.conditions or self.conditions <= conditions(record, now_ms)

    def lasting(self) -> "TaskSelection":
        """The part that never changes for a task: whether it could have been one of these before."""
        query = replace(
            self.query, states=frozenset(), updated_from_ms=None, updated_before_ms=None, queue=None
        )
        return TaskSelection(query, frozenset(), self.sees)


def selection_of(caller: Caller, message: task_pb2.TaskFilter) -> TaskSelection:
    """What a filter selects.

    Raises:
        ServiceError: FIELD_INVALID.
    """
    _check(message)
    wanted = frozenset(CONDITION_OF[value] for value in message.conditions)
    queues = {queue for condition, queue in _QUEUES.items() if condition in wanted}
    driver = message.driver if message.HasField("driver") else None
    query = TaskQuery(
        caller.tenant_id,
        actor_id=_only_actor(caller),
        states=frozenset(TASK_STATE_OF[value] for value in message.states),
        driver_id=None if driver is None else driver.id,
        driver_version=0 if driver is None else driver.version,
        session_id=message.session_id or None,
        root_run_id=message.root_run_id or None,
        queue=queues.pop() if len(queues) == 1 else None,
        **{f"{name}_ms": _instant(message, name) for name in _INSTANTS},
    )
    return TaskSelection(query, wanted, caller.sees)


def _only_actor(caller: Caller) -> str | None:
    """The one actor whose tasks the caller finds; None when it may find others' as well."""
    return caller.actor_id if caller.roles == {Role.SUBMITTER} else None


def _instant(message: task_pb2.TaskFilter, name: str) -> int | None:
    field = f"{name}_time"
    return milliseconds_of(getattr(message, field)) if message.HasField(field) else None  # type: ignore[arg-type]


def _check(message: task_pb2.TaskFilter) -> None:
    checks = Checks()
    for field, values, known in (
        ("states", message.states, set(TASK_STATE_OF)),
        ("conditions", message.conditions, set(CONDITION_OF)),
    ):
        checks.count(f"filter.{field}", len(values), 0, _MOST_VALUES)
        for index, value in enumerate(values[:_MOST_VALUES]):
            checks.known(f"filter.{field}[{index}]", value, known)
    if message.HasField("driver"):
        checks.identifier("filter.driver.id", message.driver.id)
    for field in ("session_id", "root_run_id"):
        if getattr(message, field):
            checks.identifier(f"filter.{field}", getattr(message, field))
    for name in _INSTANTS:
        if message.HasField(f"{name}_time"):  # type: ignore[arg-type]
            checks.instant(f"filter.{name}_time", getattr(message, f"{name}_time"))
    checks.raise_faults()
