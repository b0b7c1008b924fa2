"""How large a task is: the bytes of its record in the canonical form that all implementations share."""

from typing import Any

from durable_service.core.canonical_json import (
    CanonicalJson,
    canonical_bytes,
    canonical_json,
    canonical_object,
)
from durable_service.core.definition import budget_document, identity_document
from durable_service.core.errors import DomainError, Reason
from durable_service.core.limits import TASK_BYTES
from durable_service.core.model import Action, Approval, TaskRecord


def checked_size(record: TaskRecord, limit_bytes: int = TASK_BYTES) -> TaskRecord:
    """The record, when it fits.

    Only commands that add what a caller chose ask this. Claims, outcomes and cancellations do not, so that
    a full task can still end.

    Raises:
        DomainError: TASK_TOO_LARGE.
    """
    if canonical_bytes(record_text(record)) > limit_bytes:
        raise DomainError(
            Reason.TASK_TOO_LARGE, "the task would be too large", {"limit_bytes": str(limit_bytes)}
        )
    return record


def record_text(record: TaskRecord) -> CanonicalJson:
    """The canonical record, without the members that are this implementation's own and small."""
    members = {name: canonical_json(value) for name, value in _plain(record).items() if value is not None}
    definition = record.definition
    if definition.input is not None:
        members["input"] = definition.input
    members["actions"] = canonical_object(
        {action.id: _action_text(record, action) for action in record.actions.values()}
    )
    members["extensions"] = canonical_object(
        {extension.name: extension.value for extension in record.extensions.values()}
    )
    return canonical_object(members)


def _plain(record: TaskRecord) -> dict[str, Any]:
    definition = record.definition
    driver = definition.driver
    lease = record.lease
    return {
        "approvals": {approval.id: _approval(approval) for approval in record.approvals.values()},
        "attempts": [
            {"fence": item.fence, "id": item.id, "startedAt": item.started_at_ms, "workerId": item.worker_id}
            for item in record.attempts
        ],
        "artifacts": {
            item.id: [item.blob_key, item.digest, item.media_type] for item in record.artifacts.values()
        }
        or None,
        "budget": budget_document(definition.budget),
        "cancelReason": record.cancel_reason,
        "createdAt": record.created_at_ms,
        "driver": None if driver is None else {"id": driver.id, "version": driver.version},
        "failure": record.failure,
        "fence": record.fence,
        "grantRefs": definition.grant_refs,
        "id": definition.id,
        "identity": identity_document(definition.identity),
        "inputRef": definition.input_ref,
        "lease": None
        if lease is None
        else {"expiresAt": lease.expires_at_ms, "fence": lease.fence, "workerId": lease.worker_id},
        "manifestHash": definition.manifest_hash,
        "policyRevision": definition.policy_revision,
        "reservations": [[item.id, item.tokens, item.cost_micros] for item in record.reservations.values()]
        or None,
        "reservedCostMicros": record.reserved_cost_micros,
        "reservedTokens": record.reserved_tokens,
        "resultRef": record.result_ref,
        "revision": record.revision,
        "schemaVersion": 1,
        "state": record.state,
        "updatedAt": record.updated_at_ms,
    }


def _action_text(record: TaskRecord, action: Action) -> CanonicalJson:
    definition = record.definition
    plain = {
        "approvalId": action.approval_id,
        "connectorVersion": action.connector_version,
        "destination": action.destination,
        "dispatchFence": action.dispatch_fence,
        "evidenceRef": action.evidence_ref,
        "grantRefs": definition.grant_refs,
        "id": action.id,
        "idempotencyKey": action.idempotency_key,
        "identity": identity_document(definition.identity),
        "policyRevision": definition.policy_revision,
        "preparedHash": action.prepared_hash,
        "resultRef": action.result_ref,
        "state": action.state,
    }
    members = {name: canonical_json(value) for name, value in plain.items() if value is not None}
    return canonical_object({**members, "args": action.args})


def _approval(approval: Approval) -> dict[str, Any]:
    return {
        "actionId": approval.action_id,
        "actorId": approval.actor_id,
        "consumed": approval.consumed,
        "decision": approval.decision,
        "expiresAt": approval.expires_at_ms,
        "id": approval.id,
        "policyRevision": approval.policy_revision,
        "preparedHash": approval.prepared_hash,
    }
