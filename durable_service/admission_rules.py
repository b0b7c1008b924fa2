"""Admission by rules: what the tasks of each tenant may be."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from durable_service.admission import Admitted, Answer, Operation, OverQuota, Refused, TaskFacts
from durable_service.caller import Caller
from durable_service.core.definition import Driver

EVERY_DRIVER: Final = "*"
# What was admitted goes on while its driver and manifest are allowed; its budget counted at the beginning.
_ONGOING: Final = frozenset({Operation.CLAIM, Operation.BEGIN_DISPATCH, Operation.DECIDE, Operation.WAKE})


@dataclass(frozen=True, slots=True)
class TenantRules:
    """What the tasks of a tenant may be; None allows everything.

    Attributes:
        drivers: `ID` for every version, `ID@VERSION` for one, `*` for tasks without a driver as well.
        manifests: hashes of the manifests.
        extensions: names that may be written; one that ends with `*` is the beginning of names.
        reserved_extensions: names that may not, written in the same way.
        open_tasks: most tasks that have not ended.
    """

    drivers: frozenset[str] | None = None
    manifests: frozenset[str] | None = None
    max_attempts: int | None = None
    max_tokens: int | None = None
    max_cost_micros: int | None = None
    extensions: frozenset[str] | None = None
    reserved_extensions: frozenset[str] | None = None
    open_tasks: int | None = None

    def answer(self, operation: Operation, task: TaskFacts) -> Refused | OverQuota | None:
        """What stands against the operation."""
        why = None
        if operation is Operation.CREATE or operation in _ONGOING:
            why = self._of_definition(task)
        if why is None and operation is Operation.CREATE:
            why = self._of_budget(task)
        if why is None:
            why = self._of_names(task.extensions)
        if why is not None:
            return Refused(why)
        most = self.open_tasks
        if operation is Operation.CREATE and most is not None and task.open_tasks >= most:
            return OverQuota(most)
        return None

    def _of_definition(self, task: TaskFacts) -> str | None:
        if self.drivers is not None and not _names_driver(self.drivers, task.driver):
            return "the driver is not allowed"
        if self.manifests is not None and task.manifest_hash not in self.manifests:
            return "the manifest is not allowed"
        return None

    def _of_budget(self, task: TaskFacts) -> str | None:
        for name, most in (
            ("max_attempts", self.max_attempts),
            ("max_tokens", self.max_tokens),
            ("max_cost_micros", self.max_cost_micros),
        ):
            if most is not None and getattr(task.budget, name) > most:
                return f"{name} of the budget is above {most}"
        return None

    def _of_names(self, names: Iterable[str]) -> str | None:
        for name in names:
            if self.extensions is not None and not _names(self.extensions, name):
                return "an extension is not allowed"
            if self.reserved_extensions is not None and _names(self.reserved_extensions, name):
                return "an extension is reserved"
        return None


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """The rules in force.

    Attributes:
        version: names their content, and so every decision made by them.
        default: for tenants without rules of their own.
    """

    version: str
    default: TenantRules = field(default_factory=TenantRules)
    tenants: Mapping[str, TenantRules] = field(default_factory=lambda: MappingProxyType({}))

    async def decide(self, operation: Operation, caller: Caller | None, task: TaskFacts) -> Answer:  # noqa: ARG002 - the port's
        """The answer of the tenant's rules."""
        rules = self.tenants.get(task.tenant_id, self.default)
        return rules.answer(operation, task) or Admitted(self.version)


def _names_driver(allowed: frozenset[str], driver: Driver | None) -> bool:
    if EVERY_DRIVER in allowed:
        return True
    return driver is not None and not allowed.isdisjoint({driver.id, f"{driver.id}@{driver.version}"})


def _names(patterns: frozenset[str], name: str) -> bool:
    return any(
        name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern for pattern in patterns
    )
