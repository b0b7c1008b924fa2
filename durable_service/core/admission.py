"""The beginning of a task."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.definition import TaskDefinition, checked_definition, definition_digest
from durable_service.core.errors import DomainError, Reason, invalid
from durable_service.core.extensions import checked_extension_name
from durable_service.core.identifiers import checked_integer
from durable_service.core.limits import TASK_BYTES
from durable_service.core.model import Extension, TaskRecord, Tombstone
from durable_service.core.record_size import checked_size
from durable_service.core.step import Decision, Step, noted, unchanged


@dataclass(frozen=True, slots=True)
class TaskCreation:
    """A task as its submitter asks for it.

    Attributes:
        extensions: canonical JSON by name; no part of the definition.
        not_before_ms: it cannot be claimed before this instant.
        start_deadline_ms: cancellation is requested when nobody has claimed it by then.
        finish_deadline_ms: cancellation is requested when it has not ended by then.
        admission_id: of the decision that admits it, for the journal.
    """

    definition: TaskDefinition
    extensions: Mapping[str, CanonicalJson] = field(default_factory=lambda: MappingProxyType({}))
    not_before_ms: int | None = None
    start_deadline_ms: int | None = None
    finish_deadline_ms: int | None = None
    admission_id: str | None = None


@dataclass(frozen=True, slots=True)
class Created:
    """`created` is False for a repeat, which changes nothing."""

    created: bool


def create(
    existing: TaskRecord | Tombstone | None,
    creation: TaskCreation,
    now_ms: int,
    limit_bytes: int = TASK_BYTES,
) -> Decision[Created]:
    """Admits a task. The same definition under the same id is the same task; extensions do not count.

    Raises:
        DomainError: DEFINITION_MISMATCH with both digests, TASK_PURGED, TASK_TOO_LARGE, RESERVED_EXTENSION,
            INVALID_IDENTIFIER, INVALID_INTEGER or FIELD_INVALID.
    """
    definition = checked_definition(creation.definition)
    digest = definition_digest(definition)
    if existing is not None:
        return _repeated(existing, digest)
    step = Step(_fresh(creation, digest, now_ms), now_ms)
    checked_size(step.record, limit_bytes)
    step.journal("task.created", {"definitionDigest": digest})
    decision = step.unrevised(Created(created=True))
    if creation.admission_id is None:
        return decision
    return noted(decision, {"admissionId": creation.admission_id})


def _repeated(existing: TaskRecord | Tombstone, digest: str) -> Decision[Created]:
    if isinstance(existing, Tombstone):
        raise DomainError(Reason.TASK_PURGED, "a task with this id was purged, and the id stays used")
    if existing.digest != digest:
        raise DomainError(
            Reason.DEFINITION_MISMATCH,
            "the task id is taken by another definition",
            {"existing_digest": existing.digest, "requested_digest": digest},
        )
    return unchanged(existing, Created(created=False))


def _fresh(creation: TaskCreation, digest: str, now_ms: int) -> TaskRecord:
    extensions = {
        name: Extension(checked_extension_name(name), 1, value) for name, value in creation.extensions.items()
    }
    return TaskRecord(
        creation.definition,
        digest,
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
        extensions=MappingProxyType(extensions),
        not_before_ms=_instant(creation.not_before_ms, "notBefore"),
        start_deadline_ms=_deadline(creation.start_deadline_ms, "startDeadline", now_ms),
        finish_deadline_ms=_deadline(creation.finish_deadline_ms, "finishDeadline", now_ms),
    )


def _instant(at_ms: int | None, field_name: str) -> int | None:
    return None if at_ms is None else checked_integer(at_ms, field_name)


def _deadline(at_ms: int | None, field_name: str, now_ms: int) -> int | None:
    if at_ms is not None and _instant(at_ms, field_name) is not None and at_ms <= now_ms:
        raise invalid(Reason.FIELD_INVALID, field_name, "must be in the future")
    return at_ms
