"""The immutable admitted part of a task, and its digest."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from durable_service.core.canonical_json import (
    CanonicalJson,
    canonical_json,
    canonical_object,
    digest,
    digest_text,
)
from durable_service.core.errors import Reason, invalid
from durable_service.core.identifiers import checked_identifier, checked_integer
from durable_service.core.limits import (
    DEFAULT_MAXIMUM_ATTEMPTS,
    DEFAULT_MAXIMUM_COST_MICROS,
    DEFAULT_MAXIMUM_TOKENS,
    GRANTS,
)


@dataclass(frozen=True, slots=True)
class TaskKey:
    """Task ids are unique in their tenant, so the pair is the key."""

    tenant_id: str
    task_id: str


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose task it is, and the runs it belongs to; the runs have no behaviour here."""

    tenant_id: str
    actor_id: str
    session_id: str
    run_id: str
    root_run_id: str
    parent_run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Driver:
    """The registered handler that can execute a task."""

    id: str
    version: int


@dataclass(frozen=True, slots=True)
class Budget:
    """Ceilings; cost in millionths of a currency unit."""

    max_attempts: int = DEFAULT_MAXIMUM_ATTEMPTS
    max_tokens: int = DEFAULT_MAXIMUM_TOKENS
    max_cost_micros: int = DEFAULT_MAXIMUM_COST_MICROS


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """What was admitted; two definitions are the same when their digests are.

    Attributes:
        input: the inline input. None is absent; the text `null` is an input.
    """

    id: str
    identity: Identity
    manifest_hash: str
    input_ref: str
    policy_revision: int
    grant_refs: tuple[str, ...] = ()
    budget: Budget = field(default_factory=Budget)
    driver: Driver | None = None
    input: CanonicalJson | None = None

    @property
    def key(self) -> TaskKey:
        return TaskKey(self.identity.tenant_id, self.id)


def checked_definition(definition: TaskDefinition) -> TaskDefinition:
    """The definition, when every field of it is within its bounds.

    Raises:
        DomainError: INVALID_IDENTIFIER, INVALID_INTEGER or FIELD_INVALID with the field.
    """
    checked_identifier(definition.id, "id")
    for name, text in identity_document(definition.identity).items():
        checked_identifier(text, f"identity.{name}")
    checked_identifier(definition.manifest_hash, "manifestHash")
    checked_identifier(definition.input_ref, "inputRef")
    checked_integer(definition.policy_revision, "policyRevision")
    if len(definition.grant_refs) > GRANTS:
        raise invalid(Reason.FIELD_INVALID, "grantRefs", f"has more than {GRANTS} entries")
    for place, grant in enumerate(definition.grant_refs):
        checked_identifier(grant, f"grantRefs/{place}")
    checked_integer(definition.budget.max_attempts, "budget.maxAttempts", lowest=1)
    checked_integer(definition.budget.max_tokens, "budget.maxTokens")
    checked_integer(definition.budget.max_cost_micros, "budget.maxCostMicros")
    if definition.driver is not None:
        checked_identifier(definition.driver.id, "driver.id")
        checked_integer(definition.driver.version, "driver.version")
    return definition


def definition_text(definition: TaskDefinition) -> CanonicalJson:
    """The canonical text that the digest of a definition is over."""
    members = {
        name: canonical_json(value) for name, value in _document(definition).items() if value is not None
    }
    if definition.input is not None:
        members["input"] = definition.input
    return canonical_object(members)


def definition_digest(definition: TaskDefinition) -> str:
    return digest_text(definition_text(definition))


def definition_projection(document: Mapping[str, Any]) -> dict[str, Any]:
    """The definition within a JSON document that was written by another implementation.

    Unknown members of identity and driver are part of it; those of the budget and of the document are not.
    """
    budget = document.get("budget") or {}
    defaults = budget_document(Budget())
    projected = {
        name: document[name]
        for name in ("id", "identity", "manifestHash", "inputRef", "policyRevision", "grantRefs")
    }
    projected["budget"] = {
        name: default if budget.get(name) is None else budget[name] for name, default in defaults.items()
    }
    if document.get("driver") is not None:
        projected["driver"] = document["driver"]
    if "input" in document:
        projected["input"] = document["input"]
    return projected


def document_digest(document: Mapping[str, Any]) -> str:
    """The definition digest of a task input or record of another implementation."""
    return digest(definition_projection(document))


def identity_document(identity: Identity) -> dict[str, str]:
    document = {
        "actorId": identity.actor_id,
        "rootRunId": identity.root_run_id,
        "runId": identity.run_id,
        "sessionId": identity.session_id,
        "tenantId": identity.tenant_id,
    }
    if identity.parent_run_id is not None:
        document["parentRunId"] = identity.parent_run_id
    return document


def budget_document(budget: Budget) -> dict[str, int]:
    return {
        "maxAttempts": budget.max_attempts,
        "maxCostMicros": budget.max_cost_micros,
        "maxTokens": budget.max_tokens,
    }


def _document(definition: TaskDefinition) -> dict[str, object]:
    driver = definition.driver
    return {
        "budget": budget_document(definition.budget),
        "driver": None if driver is None else {"id": driver.id, "version": driver.version},
        "grantRefs": definition.grant_refs,
        "id": definition.id,
        "identity": identity_document(definition.identity),
        "inputRef": definition.input_ref,
        "manifestHash": definition.manifest_hash,
        "policyRevision": definition.policy_revision,
    }
