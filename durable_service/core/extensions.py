"""Named slots for hosts."""

from typing import Final

from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.errors import DomainError, Reason, invalid
from durable_service.core.guards import working_lease
from durable_service.core.identifiers import checked_identifier
from durable_service.core.limits import TASK_BYTES
from durable_service.core.model import Extension, Holder, TaskRecord, with_entry, without_entry
from durable_service.core.record_size import checked_size
from durable_service.core.step import Decision, Step, unchanged

RESERVED_PREFIXES: Final = ("agentium.", "sealwork.")


def checked_extension_name(name: str) -> str:
    """The name, when hosts may use it.

    Raises:
        DomainError: RESERVED_EXTENSION or INVALID_IDENTIFIER.
    """
    if name.startswith(RESERVED_PREFIXES):
        raise invalid(Reason.RESERVED_EXTENSION, f"extensions.{name}", "is a reserved name")
    return checked_identifier(name, "extensions")


def update_extension(
    record: TaskRecord,
    name: str,
    value: CanonicalJson | None,
    now_ms: int,
    *,
    expected_revision: int | None = None,
    holder: Holder | None = None,
    limit_bytes: int = TASK_BYTES,
) -> Decision[Extension | None]:
    """Sets a slot, or empties it; allowed in every state of the task.

    Args:
        value: None empties the slot.
        expected_revision: what the slot has now; 0 when it is empty. A repeat, which finds its own value
            one revision on, changes nothing.
        holder: writes under this lease instead of, or beside, an expected revision.

    Raises:
        DomainError: RESERVED_EXTENSION, INVALID_IDENTIFIER, LEASE_LOST, TASK_NOT_RUNNING, EXTENSION_CONFLICT
            with the current revision, TASK_TOO_LARGE.
    """
    checked_extension_name(name)
    if holder is not None:
        working_lease(record, holder, now_ms)
    present = record.extensions.get(name)
    revision = 0 if present is None else present.revision
    if expected_revision is not None and expected_revision != revision:
        if _is_repeat(present, expected_revision, value):
            return unchanged(record, present)
        raise DomainError(
            Reason.EXTENSION_CONFLICT, "the extension has changed", {"current_revision": str(revision)}
        )
    step = Step(record, now_ms)
    if value is None:
        step.change(extensions=without_entry(record.extensions, name))
        return step.decision(None)
    extension = Extension(name, revision + 1, value)
    step.change(extensions=with_entry(record.extensions, name, extension))
    checked_size(step.record, limit_bytes)
    return step.decision(extension)


def _is_repeat(present: Extension | None, expected_revision: int, value: CanonicalJson | None) -> bool:
    if present is None:
        return value is None
    return present.revision == expected_revision + 1 and present.value == value
