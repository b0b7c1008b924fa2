"""Records as they lie on disk: JSON documents with a format version.

The definition never changes and is kept apart from the progress of a task; the lease lies apart from both,
since renewing it must not rewrite them. What was written by a newer version is refused, never guessed at.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final, TypeVar

import orjson

from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.definition import Budget, Driver, Identity, TaskDefinition
from durable_service.core.model import (
    Action,
    Approval,
    ArtifactReference,
    Attempt,
    ClaimReason,
    Ending,
    Extension,
    Lease,
    RejectionCause,
    Reservation,
    Settlement,
    Snapshot,
    TaskEvent,
    TaskRecord,
)
from durable_service.core.states import ActionState, ApprovalDecision, TaskState
from durable_service.store.base import StoreFault, StoreUnavailable

FORMAT: Final = 1
Value = TypeVar("Value")

# Of a record: what is written once, and what lies elsewhere.
_ADMITTED: Final = ("digest", "created_at_ms", "start_deadline_ms", "finish_deadline_ms")
_ELSEWHERE: Final = frozenset({"definition", "lease", *_ADMITTED})
_PROGRESS: Final = tuple(field.name for field in fields(TaskRecord) if field.name not in _ELSEWHERE)


def encode_definition(record: TaskRecord) -> bytes:
    admitted = {name: getattr(record, name) for name in _ADMITTED}
    return _encoded({"format": FORMAT, "definition": record.definition, **admitted})


def encode_progress(record: TaskRecord) -> bytes:
    return _encoded({"format": FORMAT, **{name: getattr(record, name) for name in _PROGRESS}})


def encode_lease(lease: Lease | None) -> bytes | None:
    return None if lease is None else _encoded(lease)


def encode_event(event: TaskEvent) -> bytes:
    return _encoded({"format": FORMAT, "event": event})


def decode_record(definition: bytes, progress: bytes, lease: bytes | None) -> TaskRecord:
    """The record of three documents.

    Raises:
        StoreUnavailable: written by a newer version, or not readable.
    """
    return _guarded(_record, definition, progress, lease)


def decode_lease(lease: bytes) -> Lease:
    """The lease of a document; raises as `decode_record`."""
    return _guarded(lambda: _lease(orjson.loads(lease)))


def decode_event(body: bytes) -> TaskEvent:
    """The journal entry of a document; raises as `decode_record`."""
    return _guarded(lambda: TaskEvent(**_opened(body)["event"]))


def _record(definition: bytes, progress: bytes, lease: bytes | None) -> TaskRecord:
    admitted = _opened(definition)
    document = _opened(progress)
    return TaskRecord(
        definition=_definition(admitted.pop("definition")),
        lease=None if lease is None else _lease(orjson.loads(lease)),
        **admitted,
        **_progress(document),
    )


def _progress(document: dict[str, Any]) -> dict[str, Any]:
    settlement = document["settlement"]
    return {
        **document,
        "state": TaskState(document["state"]),
        "settlement": None if settlement is None else _settlement(settlement),
        "attempts": tuple(Attempt(**item) for item in document["attempts"]),
        "reservations": _mapped(document["reservations"], lambda item: Reservation(**item)),
        "actions": _mapped(document["actions"], _action),
        "approvals": _mapped(document["approvals"], _approval),
        "extensions": _mapped(document["extensions"], lambda item: Extension(**item)),
        "artifacts": _mapped(document["artifacts"], lambda item: ArtifactReference(**item)),
        "snapshots": _mapped(document["snapshots"], lambda item: Snapshot(**item)),
    }


def _definition(document: dict[str, Any]) -> TaskDefinition:
    driver, text = document.pop("driver"), document.pop("input")
    return TaskDefinition(
        identity=Identity(**document.pop("identity")),
        grant_refs=tuple(document.pop("grant_refs")),
        budget=Budget(**document.pop("budget")),
        driver=None if driver is None else Driver(**driver),
        input=None if text is None else CanonicalJson(text),
        **document,
    )


def _lease(document: dict[str, Any]) -> Lease:
    return Lease(**{**document, "reason": ClaimReason(document["reason"])})


def _settlement(document: dict[str, Any]) -> Settlement:
    return Settlement(**{**document, "ending": Ending(document["ending"])})


def _action(document: dict[str, Any]) -> Action:
    cause = document["rejection"]
    rejection = None if cause is None else RejectionCause(cause)
    return Action(**{**document, "state": ActionState(document["state"]), "rejection": rejection})


def _approval(document: dict[str, Any]) -> Approval:
    return Approval(**{**document, "decision": ApprovalDecision(document["decision"])})


def _mapped(
    documents: dict[str, dict[str, Any]], build: Callable[[dict[str, Any]], Value]
) -> Mapping[str, Value]:
    return MappingProxyType({name: build(document) for name, document in documents.items()})


def _encoded(document: object) -> bytes:
    return orjson.dumps(document, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no form on disk")


def _opened(body: bytes) -> dict[str, Any]:
    document: dict[str, Any] = orjson.loads(body)
    written = document.pop("format")
    if written > FORMAT:
        raise StoreUnavailable(
            StoreFault.NEWER_FORMAT,
            f"a record has format {written}, and this version reads up to {FORMAT}: upgrade the service",
        )
    return document


def _guarded(decode: Callable[..., Value], *bodies: Any) -> Value:
    try:
        return decode(*bodies)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StoreUnavailable(StoreFault.CORRUPT, "a record in the store cannot be read") from None
