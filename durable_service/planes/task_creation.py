"""From the request that admits a task to the core's word for it."""

from dataclasses import replace
from types import MappingProxyType

from durable_service.caller import Caller
from durable_service.core.admission import TaskCreation
from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.canonical_json_reader import parse_canonical
from durable_service.core.definition import Budget, Identity, TaskDefinition
from durable_service.core.errors import DomainError
from durable_service.core.limits import (
    DEFAULT_MAXIMUM_ATTEMPTS,
    DEFAULT_MAXIMUM_COST_MICROS,
    DEFAULT_MAXIMUM_TOKENS,
    MAXIMUM_SAFE_INTEGER,
)
from durable_service.planes.convert import driver_of, milliseconds_of_duration
from durable_service.planes.validation import LONGEST_DELAY_MS, Checks
from sealwork.durable.v1 import task_pb2, task_service_pb2

_MOST_EXTENSIONS = 64
_FIELDS = {
    "id": "task_id",
    "notBefore": "delay",
    "startDeadline": "start_within",
    "finishDeadline": "finish_within",
}
_IN_DEFINITION = frozenset({"manifestHash", "inputRef", "policyRevision", "grantRefs", "budget", "driver"})
_SPANS = {"start_within": 1, "finish_within": 1, "delay": 0}


def creation_of(caller: Caller, request: task_service_pb2.CreateTaskRequest, now_ms: int) -> TaskCreation:
    """The task that a caller asks for; its spans count from this instant.

    Raises:
        ServiceError: FIELD_INVALID.
        DomainError: INVALID_JSON.
    """
    _check(request)
    return TaskCreation(
        _definition(caller, request),
        _extensions(request),
        _instant(request, "delay", now_ms),
        _instant(request, "start_within", now_ms),
        _instant(request, "finish_within", now_ms),
    )


def _check(request: task_service_pb2.CreateTaskRequest) -> None:
    checks = Checks()
    if not request.HasField("definition"):
        checks.fault("definition", "is missing")
    if not request.HasField("run"):
        checks.fault("run", "is missing")
    checks.count("extensions", len(request.extensions), 0, _MOST_EXTENSIONS)
    names = [extension.name for extension in request.extensions]
    for index, name in enumerate(names[:_MOST_EXTENSIONS]):
        if name in names[:index]:
            checks.fault(f"extensions[{index}].name", "is named twice")
    for field, least_ms in _SPANS.items():
        if request.HasField(field):  # type: ignore[arg-type]
            checks.span(field, getattr(request, field), least_ms, LONGEST_DELAY_MS)
    checks.raise_faults()


def _definition(caller: Caller, request: task_service_pb2.CreateTaskRequest) -> TaskDefinition:
    definition, run = request.definition, request.run
    return TaskDefinition(
        request.task_id,
        Identity(
            caller.tenant_id,
            caller.actor_id,
            run.session_id,
            run.run_id,
            run.root_run_id,
            run.parent_run_id if run.HasField("parent_run_id") else None,
        ),
        definition.manifest_hash,
        definition.input_ref,
        definition.policy_revision,
        tuple(definition.grant_refs),
        _budget(definition.budget),
        driver_of(definition.driver) if definition.HasField("driver") else None,
        parse_canonical(definition.input, "definition.input") if definition.HasField("input") else None,
    )


def _budget(budget: task_pb2.Budget) -> Budget:
    return Budget(
        budget.max_attempts if budget.HasField("max_attempts") else DEFAULT_MAXIMUM_ATTEMPTS,
        budget.max_tokens if budget.HasField("max_tokens") else DEFAULT_MAXIMUM_TOKENS,
        budget.max_cost_micros if budget.HasField("max_cost_micros") else DEFAULT_MAXIMUM_COST_MICROS,
    )


def _extensions(request: task_service_pb2.CreateTaskRequest) -> MappingProxyType[str, CanonicalJson]:
    return MappingProxyType(
        {
            extension.name: parse_canonical(extension.value, f"extensions[{index}].value")
            for index, extension in enumerate(request.extensions)
        }
    )


def _instant(request: task_service_pb2.CreateTaskRequest, field: str, now_ms: int) -> int | None:
    if not request.HasField(field):  # type: ignore[arg-type]
        return None
    return min(now_ms + milliseconds_of_duration(getattr(request, field)), MAXIMUM_SAFE_INTEGER)


def named_as_requested(error: DomainError) -> DomainError:
    """The refusal of a creation, with fields as the request has them."""
    if not error.violations:
        return error
    violations = [replace(each, subject=_requested(each.subject)) for each in error.violations]
    message = f"{violations[0].subject}: {violations[0].description}"
    return DomainError(error.reason, message, error.details, violations)


def _requested(subject: str) -> str:
    if subject in _FIELDS:
        return _FIELDS[subject]
    if subject.startswith("identity."):
        return "run." + subject.removeprefix("identity.")
    if subject.partition(".")[0].partition("/")[0] in _IN_DEFINITION:
        return "definition." + subject
    return subject
