"""References to bytes that are kept beside a task. A reference is written after its bytes."""

import re
from dataclasses import dataclass
from typing import Final

from durable_service.core.binding import blob_key
from durable_service.core.errors import DomainError, Reason, invalid
from durable_service.core.guards import held_lease, working_lease
from durable_service.core.identifiers import checked_identifier, checked_integer
from durable_service.core.limits import (
    ARTIFACT_BYTES,
    CHECKPOINT_ID_UTF16_UNITS,
    MAXIMUM_SAFE_INTEGER,
    TASK_BYTES,
)
from durable_service.core.model import ArtifactReference, Holder, Snapshot, TaskRecord, with_entry
from durable_service.core.record_size import checked_size
from durable_service.core.step import Decision, Step, unchanged

SNAPSHOT_PREFIX: Final = "snapshot:"
SNAPSHOT_MEDIA_TYPE: Final = "application/json"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ArtifactContent:
    """Bytes as they are described before they are sent; `ttl_ms` counts from the write of the reference."""

    id: str
    digest: str
    size_bytes: int
    media_type: str
    ttl_ms: int


def checked_content(content: ArtifactContent, limit_bytes: int = ARTIFACT_BYTES) -> ArtifactContent:
    """The description, when the bytes may be sent; it is asked before anything is stored.

    Raises:
        DomainError: INVALID_IDENTIFIER, FIELD_INVALID, ARTIFACT_TOO_LARGE, TTL_RANGE.
    """
    checked_identifier(content.id, "artifactId")
    checked_identifier(content.media_type, "mediaType")
    if content.id.startswith(SNAPSHOT_PREFIX):
        raise invalid(Reason.INVALID_IDENTIFIER, "artifactId", "begins like the ids of checkpoints")
    return _checked_bounds(content, limit_bytes)


def checkpoint_content(
    checkpoint_id: str, digest: str, size_bytes: int, ttl_ms: int, limit_bytes: int = ARTIFACT_BYTES
) -> ArtifactContent:
    """How the bytes of a checkpoint are described; raises as `checked_content`."""
    checked_identifier(checkpoint_id, "checkpointId", CHECKPOINT_ID_UTF16_UNITS)
    content = ArtifactContent(
        SNAPSHOT_PREFIX + checkpoint_id, digest, size_bytes, SNAPSHOT_MEDIA_TYPE, ttl_ms
    )
    return _checked_bounds(content, limit_bytes)


def put_artifact(
    record: TaskRecord,
    holder: Holder,
    content: ArtifactContent,
    now_ms: int,
    limit_bytes: int = TASK_BYTES,
) -> Decision[ArtifactReference]:
    """Writes the reference to bytes that are stored already.

    The same id with the same bytes is the stored reference, and its expiry does not move. A lease to recover
    is enough: what a look-up has found may be kept, and begins nothing.

    Raises:
        DomainError: LEASE_LOST, ARTIFACT_IMMUTABLE with the existing digest, TTL_RANGE, TASK_TOO_LARGE.
    """
    step = Step(record, now_ms)
    held_lease(record, holder, now_ms)
    reference = _put(step, content)
    if not step.changed:
        return unchanged(record, reference)
    checked_size(step.record, limit_bytes)
    return step.decision(reference)


def put_checkpoint(
    record: TaskRecord,
    holder: Holder,
    checkpoint_id: str,
    content: ArtifactContent,
    now_ms: int,
    limit_bytes: int = TASK_BYTES,
) -> Decision[Snapshot]:
    """Writes the reference to a checkpoint, and the checkpoint, in one step.

    Raises as `put_artifact`, and TASK_NOT_RUNNING for a lease to recover: a checkpoint is a handler's.
    """
    step = Step(record, now_ms)
    working_lease(record, holder, now_ms)
    reference = _put(step, content)
    snapshot = Snapshot(checkpoint_id, reference.id, reference.digest)
    if step.record.snapshots.get(checkpoint_id) != snapshot:
        step.change(snapshots=with_entry(step.record.snapshots, checkpoint_id, snapshot))
    if not step.changed:
        return unchanged(record, snapshot)
    checked_size(step.record, limit_bytes)
    return step.decision(snapshot)


def readable_artifact(record: TaskRecord, artifact_id: str, now_ms: int) -> ArtifactReference:
    """The reference, while its bytes may be read.

    Raises:
        DomainError: ARTIFACT_NOT_FOUND, ARTIFACT_EXPIRED.
    """
    reference = record.artifacts.get(artifact_id)
    if reference is None:
        raise DomainError(Reason.ARTIFACT_NOT_FOUND, "the task has no such artifact")
    if reference.expires_at_ms <= now_ms:
        raise DomainError(Reason.ARTIFACT_EXPIRED, "the artifact has expired")
    return reference


def readable_snapshot(record: TaskRecord, checkpoint_id: str, now_ms: int) -> ArtifactReference:
    """The reference to the bytes of a checkpoint, while they may be read.

    Raises:
        DomainError: SNAPSHOT_NOT_FOUND, ARTIFACT_EXPIRED.
    """
    snapshot = record.snapshots.get(checkpoint_id)
    if snapshot is None:
        raise DomainError(Reason.SNAPSHOT_NOT_FOUND, "the task has no such checkpoint")
    return readable_artifact(record, snapshot.artifact_id, now_ms)


def _checked_bounds(content: ArtifactContent, limit_bytes: int) -> ArtifactContent:
    if not _DIGEST.fullmatch(content.digest):
        raise invalid(Reason.FIELD_INVALID, "digest", "must be sha256: and 64 lower-case hex digits")
    checked_integer(content.size_bytes, "sizeBytes")
    if content.size_bytes > limit_bytes:
        raise DomainError(
            Reason.ARTIFACT_TOO_LARGE, "the artifact is too large", {"limit_bytes": str(limit_bytes)}
        )
    if content.ttl_ms <= 0:
        raise invalid(Reason.TTL_RANGE, "ttl", "must be above zero")
    return content


def _put(step: Step, content: ArtifactContent) -> ArtifactReference:
    record = step.record
    present = record.artifacts.get(content.id)
    if present is not None:
        if (present.digest, present.media_type) != (content.digest, content.media_type):
            raise DomainError(
                Reason.ARTIFACT_IMMUTABLE, "the id holds other bytes", {"existing_digest": present.digest}
            )
        return present
    expires_at_ms = step.now_ms + content.ttl_ms
    if expires_at_ms > MAXIMUM_SAFE_INTEGER:
        raise invalid(Reason.TTL_RANGE, "ttl", "is too long to count")
    reference = ArtifactReference(
        content.id,
        blob_key(record.key, content.id, content.digest),
        content.digest,
        content.size_bytes,
        content.media_type,
        expires_at_ms,
        step.now_ms,
    )
    step.change(artifacts=with_entry(record.artifacts, content.id, reference))
    return reference
