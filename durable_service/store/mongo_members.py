"""The members of a task's document that other implementations on the same database read as well.

They stand at the top of the document. JSON values are there as the database's own values; a value that it
cannot hold (a member name with a NUL, an unpaired surrogate) is left out, and stands in this implementation's
own part alone. Names of actions, approvals and extensions may have dots or begin with `$`: they are written
within whole values only, never as a path.
"""

import json
from collections.abc import Mapping
from typing import Any

from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.definition import budget_document, identity_document
from durable_service.core.limits import MAXIMUM_SAFE_INTEGER
from durable_service.core.model import Action, Approval, Lease, TaskRecord


class _NotHeld(Exception):  # noqa: N818 - it is caught here
    """The database has no form for a value."""


def definition_members(record: TaskRecord) -> dict[str, Any]:
    """What never changes of a task."""
    definition = record.definition
    driver = definition.driver
    members = {
        "schemaVersion": 1,
        "id": definition.id,
        "identity": identity_document(definition.identity),
        "manifestHash": definition.manifest_hash,
        "inputRef": definition.input_ref,
        "policyRevision": definition.policy_revision,
        "grantRefs": list(definition.grant_refs),
        "budget": budget_document(definition.budget),
        "createdAt": record.created_at_ms,
    }
    if driver is not None:
        members["driver"] = {"id": driver.id, "version": driver.version}
    return members | _json_members({} if definition.input is None else {"input": definition.input})


def progress_members(record: TaskRecord, before: TaskRecord | None) -> dict[str, Any]:
    """What a write changes; None for a member that is not there.

    Args:
        before: large parts that are the same objects in it are left out.
    """
    members: dict[str, Any] = {
        "state": record.state.value,
        "revision": record.revision,
        "fence": record.fence,
        "updatedAt": record.updated_at_ms,
        "lease": lease_member(record.lease),
        "reservedTokens": record.reserved_tokens,
        "reservedCostMicros": record.reserved_cost_micros,
        "resultRef": record.result_ref,
        "failure": record.failure,
        "cancelReason": record.cancel_reason,
    }
    if before is None or record.attempts is not before.attempts:
        members["attempts"] = [
            {"id": item.id, "workerId": item.worker_id, "fence": item.fence, "startedAt": item.started_at_ms}
            for item in record.attempts
        ]
    if before is None or record.actions is not before.actions:
        members["actions"] = {name: _action(record, action) for name, action in record.actions.items()}
    if before is None or record.approvals is not before.approvals:
        members["approvals"] = {name: _approval(approval) for name, approval in record.approvals.items()}
    if before is None or record.extensions is not before.extensions:
        members["extensions"] = _json_members(
            {name: extension.value for name, extension in record.extensions.items()}
        )
    return members


def lease_member(lease: Lease | None) -> dict[str, Any] | None:
    if lease is None:
        return None
    return {"workerId": lease.worker_id, "fence": lease.fence, "expiresAt": lease.expires_at_ms}


def _action(record: TaskRecord, action: Action) -> dict[str, Any]:
    definition = record.definition
    members = {
        "id": action.id,
        "connectorVersion": action.connector_version,
        "destination": action.destination,
        "policyRevision": definition.policy_revision,
        "grantRefs": list(definition.grant_refs),
        "identity": identity_document(definition.identity),
        "preparedHash": action.prepared_hash,
        "idempotencyKey": action.idempotency_key,
        "state": action.state.value,
        "approvalId": action.approval_id,
        "dispatchFence": action.dispatch_fence,
        "resultRef": action.result_ref,
        "evidenceRef": action.evidence_ref,
    }
    present = {name: value for name, value in members.items() if value is not None}
    return present | _json_members({"args": action.args})


def _approval(approval: Approval) -> dict[str, Any]:
    return {
        "id": approval.id,
        "actionId": approval.action_id,
        "actorId": approval.actor_id,
        "preparedHash": approval.prepared_hash,
        "policyRevision": approval.policy_revision,
        "expiresAt": approval.expires_at_ms,
        "decision": approval.decision.value,
        "consumed": approval.consumed,
    }


def _json_members(texts: Mapping[str, CanonicalJson]) -> dict[str, Any]:
    members = {}
    for name, text in texts.items():
        try:
            members[_name(name)] = _held(json.loads(text))
        except _NotHeld:
            continue
    return members


def _held(value: Any) -> Any:
    if isinstance(value, dict):
        return {_name(name): _held(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_held(item) for item in value]
    if isinstance(value, str):
        return _text(value)
    # JSON has doubles alone; the database would refuse an integer beyond 64 bits.
    if isinstance(value, int) and abs(value) > MAXIMUM_SAFE_INTEGER:
        return float(value)
    return value


def _name(name: str) -> str:
    if "\0" in name:
        raise _NotHeld
    return _text(name)


def _text(text: str) -> str:
    if not text.isascii() and any("\ud800" <= unit <= "\udfff" for unit in text):
        raise _NotHeld
    return text
