"""A principal in one call: what it may see, and the name under which it holds leases."""

from dataclasses import dataclass
from typing import TypeVar

from durable_service.core.definition import Driver, TaskKey
from durable_service.core.errors import DomainError, Reason
from durable_service.core.model import Holder, TaskRecord
from durable_service.core.step import Decision
from durable_service.principals import Principal, Role
from durable_service.store.base import Mutation

Answer = TypeVar("Answer")

# No principal has one in its id, so the first one in a holder's name ends the principal.
_SEPARATOR = "/"
# Built once: every call of a worker asks.
_OVERSEERS = frozenset({Role.OPERATOR, Role.ADMIN})


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, with those of its roles that this call allows."""

    principal: Principal
    roles: frozenset[Role]

    @property
    def id(self) -> str:
        return self.principal.id

    @property
    def tenant_id(self) -> str:
        return self.principal.tenant_id

    @property
    def actor_id(self) -> str:
        return self.principal.actor_id

    def key(self, task_id: str) -> TaskKey:
        """The task of that id in the caller's own tenant: there is no way to name another."""
        return TaskKey(self.tenant_id, task_id)

    def sees(self, record: TaskRecord) -> bool:
        """Whether the task exists as far as this caller is concerned."""
        definition = record.definition
        if definition.identity.tenant_id != self.principal.tenant_id:
            return False
        if not self.roles.isdisjoint(_OVERSEERS):
            return True
        if Role.SUBMITTER in self.roles and definition.identity.actor_id == self.actor_id:
            return True
        return Role.WORKER in self.roles and self.principal.executes(definition.driver)

    def executes(self, driver: Driver | None) -> bool:
        return Role.WORKER in self.roles and self.principal.executes(driver)

    def holder(self, worker_id: str, fence: int) -> Holder:
        """Whom a lease of this principal's worker is held by. Another principal cannot be that holder."""
        return Holder(self.holder_name(worker_id), fence)

    def holder_name(self, worker_id: str) -> str:
        return holder_name(self.id, worker_id)


def holder_name(principal_id: str, worker_id: str) -> str:
    """The worker as the store knows it: bound to the principal that claimed."""
    return f"{principal_id}{_SEPARATOR}{worker_id}"


def worker_of(name: str) -> str:
    """The worker id of a holder's name."""
    return name.partition(_SEPARATOR)[2]


def principal_of(name: str) -> str:
    """The principal of a holder's name."""
    return name.partition(_SEPARATOR)[0]


def hidden() -> DomainError:
    """What is told of a task that is not there, and of one that the caller may not know of."""
    return DomainError(Reason.TASK_NOT_FOUND, "there is no such task for this caller")


def visible(caller: Caller, record: TaskRecord | None) -> TaskRecord:
    """The task, when it exists for this caller.

    Raises:
        DomainError: TASK_NOT_FOUND.
    """
    if record is None or not caller.sees(record):
        raise hidden()
    return record


def for_caller(caller: Caller, mutate: Mutation[Answer]) -> Mutation[Answer]:
    """The command, refused with TASK_NOT_FOUND on a task that the caller cannot see."""

    def run(record: TaskRecord, now_ms: int) -> Decision[Answer]:
        return mutate(visible(caller, record), now_ms)

    return run
