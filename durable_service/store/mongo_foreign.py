"""Tasks that another implementation wrote to the same database, read as they are meant.

It knows fewer things than this one: what a record has beyond it begins as in a task that has just been
admitted. Its journal is an extension of the task. Numbers may have come as doubles.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from bson.dbref import DBRef

from durable_service.core.canonical_json import CanonicalJson, canonical_json
from durable_service.core.definition import (
    Budget,
    Driver,
    Identity,
    TaskDefinition,
    definition_projection,
    document_digest,
)
from durable_service.core.model import (
    Action,
    Approval,
    ArtifactReference,
    Attempt,
    ClaimReason,
    Extension,
    Lease,
    Snapshot,
    TaskEvent,
    TaskRecord,
)
from durable_service.core.states import ActionState, ApprovalDecision, TaskState

RECORDS: Final = "agentium.records.v1"


def foreign_record(document: dict[str, Any]) -> tuple[TaskRecord, tuple[TaskEvent, ...]]:
    """The record and the journal of a document that has no part of this implementation.

    Raises:
        KeyError, ValueError, TypeError, AttributeError: it is no task.
    """
    document = _plain(document)
    extensions = dict(document.get("extensions") or {})
    records = extensions.pop(RECORDS, None) or {}
    created, updated = int(document["createdAt"]), int(document["updatedAt"])
    attempts = tuple(
        Attempt(item["id"], item["workerId"], int(item["fence"]), int(item["startedAt"]))
        for item in document.get("attempts") or ()
    )
    state = TaskState(document["state"])
    record = TaskRecord(
        definition=_definition(document),
        digest=document_digest(document),
        created_at_ms=created,
        updated_at_ms=updated,
        state=state,
        revision=int(document["revision"]),
        fence=int(document["fence"]),
        lease=_lease(document.get("lease"), attempts),
        last_claim_id=attempts[-1].id if attempts else None,
        attempts=attempts,
        reserved_tokens=int(document.get("reservedTokens") or 0),
        reserved_cost_micros=int(document.get("reservedCostMicros") or 0),
        actions=_mapped(document.get("actions"), lambda item: _action(item, created, updated)),
        approvals=_mapped(document.get("approvals"), lambda item: _approval(item, created)),
        extensions=MappingProxyType(
            {name: Extension(name, 1, canonical_json(value)) for name, value in extensions.items()}
        ),
        artifacts=_mapped(records.get("artifacts"), lambda item: _artifact(item, updated)),
        snapshots=_mapped(
            records.get("snapshots"),
            lambda item: Snapshot(
                item["artifactId"].removeprefix("snapshot:"), item["artifactId"], item["digest"]
            ),
        ),
        result_ref=document.get("resultRef"),
        failure=document.get("failure"),
        cancel_reason=document.get("cancelReason"),
        last_sequence=int(records.get("next") or 1) - 1,
    )
    return record, tuple(_event(item, record) for item in records.get("events") or ())


def _plain(value: Any) -> Any:
    if isinstance(value, DBRef):
        # A value with a member `$ref`, which the driver takes for a reference.
        value = dict(value.as_doc())
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _definition(document: dict[str, Any]) -> TaskDefinition:
    projected = definition_projection(document)
    identity, budget, driver = projected["identity"], projected["budget"], projected.get("driver")
    return TaskDefinition(
        id=projected["id"],
        identity=Identity(
            identity["tenantId"],
            identity["actorId"],
            identity["sessionId"],
            identity["runId"],
            identity["rootRunId"],
            identity.get("parentRunId"),
        ),
        manifest_hash=projected["manifestHash"],
        input_ref=projected["inputRef"],
        policy_revision=int(projected["policyRevision"]),
        grant_refs=tuple(projected["grantRefs"]),
        budget=Budget(int(budget["maxAttempts"]), int(budget["maxTokens"]), int(budget["maxCostMicros"])),
        driver=None if driver is None else Driver(driver["id"], int(driver["version"])),
        input=canonical_json(projected["input"]) if "input" in projected else None,
    )


def _lease(member: dict[str, Any] | None, attempts: tuple[Attempt, ...]) -> Lease | None:
    if not member:
        return None
    fence = int(member["fence"])
    # A claim that is no attempt was made to recover the task.
    claim = next((attempt.id for attempt in attempts if attempt.fence == fence), None)
    reason = ClaimReason.FRESH if fence == 1 else ClaimReason.RESUMED
    return Lease(
        member["workerId"],
        fence,
        int(member["expiresAt"]),
        claim or "",
        ClaimReason.RECOVERY if claim is None else reason,
    )


def _action(member: dict[str, Any], created_ms: int, updated_ms: int) -> Action:
    fence = member.get("dispatchFence")
    return Action(
        id=member["id"],
        connector_version=member["connectorVersion"],
        destination=member["destination"],
        args=canonical_json(member.get("args")),
        prepared_hash=member["preparedHash"],
        idempotency_key=member["idempotencyKey"],
        state=ActionState(member["state"]),
        created_at_ms=created_ms,
        updated_at_ms=updated_ms,
        approval_id=member.get("approvalId"),
        dispatch_fence=None if fence is None else int(fence),
        result_ref=member.get("resultRef"),
        evidence_ref=member.get("evidenceRef"),
    )


def _approval(member: dict[str, Any], created_ms: int) -> Approval:
    return Approval(
        id=member["id"],
        action_id=member["actionId"],
        actor_id=member["actorId"],
        prepared_hash=member["preparedHash"],
        policy_revision=int(member["policyRevision"]),
        expires_at_ms=int(member["expiresAt"]),
        created_at_ms=created_ms,
        decision=ApprovalDecision(member["decision"]),
        consumed=bool(member["consumed"]),
    )


def _artifact(member: dict[str, Any], updated_ms: int) -> ArtifactReference:
    return ArtifactReference(
        id=member["id"],
        blob_key=member["blobKey"],
        digest=member["digest"],
        size_bytes=int(member["bytes"]),
        media_type=member["mimeType"],
        expires_at_ms=int(member["expiresAt"]),
        created_at_ms=updated_ms,
    )


def _event(member: dict[str, Any], record: TaskRecord) -> TaskEvent:
    attempt_id = member.get("attemptId")
    fence = next((item.fence for item in record.attempts if item.id == attempt_id), 0)
    data: CanonicalJson = canonical_json(member.get("data"))
    return TaskEvent(int(member["sequence"]), member["type"], int(member["at"]), attempt_id, fence, data)


def _mapped(members: dict[str, Any] | None, build: Any) -> Mapping[str, Any]:
    return MappingProxyType({name: build(item) for name, item in (members or {}).items()})
