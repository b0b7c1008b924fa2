"""Actions and approvals as their readers see them."""

from typing import Final

from durable_service.core.approvals import approvable
from durable_service.core.model import Action, Approval, RejectionCause, TaskRecord
from durable_service.core.states import ApprovalDecision
from durable_service.planes.convert import ACTION_STATES, timestamp_of
from sealwork.durable.v1 import action_pb2, action_service_pb2, approval_pb2

REJECTIONS: Final = {
    RejectionCause.APPROVAL_DENIED: action_service_pb2.REJECTION_REASON_DENIED,
    RejectionCause.APPROVAL_EXPIRED: action_service_pb2.REJECTION_REASON_EXPIRED,
    RejectionCause.APPROVAL_CONSUMED: action_service_pb2.REJECTION_REASON_CONSUMED,
    RejectionCause.APPROVAL_BINDING: action_service_pb2.REJECTION_REASON_BINDING,
}


def action_message(record: TaskRecord, action: Action, *, with_args: bool) -> action_pb2.Action:
    return action_pb2.Action(
        task_id=record.key.task_id,
        action_id=action.id,
        state=ACTION_STATES[action.state],
        connector_version=action.connector_version,
        destination=action.destination,
        args=action.args.encode() if with_args else None,
        policy_revision=record.definition.policy_revision,
        grant_refs=record.definition.grant_refs,
        prepared_hash=action.prepared_hash,
        idempotency_key=action.idempotency_key,
        approval_id=action.approval_id,
        dispatch_fence=action.dispatch_fence,
        dispatch_id=action.dispatch_id,
        result_ref=action.result_ref,
        evidence_ref=action.evidence_ref,
        create_time=timestamp_of(action.created_at_ms),
        update_time=timestamp_of(action.updated_at_ms),
    )


def approval_message(record: TaskRecord, approval: Approval, now_ms: int) -> approval_pb2.Approval:
    return approval_pb2.Approval(
        approval_id=approval.id,
        task_id=record.key.task_id,
        action_id=approval.action_id,
        approver_id=approval.actor_id,
        prepared_hash=approval.prepared_hash,
        policy_revision=approval.policy_revision,
        state=approval_state(record, approval, now_ms),
        expire_time=timestamp_of(approval.expires_at_ms),
        create_time=timestamp_of(approval.created_at_ms),
        decide_time=None if approval.decided_at_ms is None else timestamp_of(approval.decided_at_ms),
        note=approval.note,
    )


def approval_state(
    record: TaskRecord, approval: Approval, now_ms: int
) -> approval_pb2.ApprovalState.ValueType:
    """Where an approval stands at an instant."""
    if approval.consumed:
        return approval_pb2.APPROVAL_STATE_USED
    if approval.decision is ApprovalDecision.DENIED:
        return approval_pb2.APPROVAL_STATE_DENIED
    if approval.expires_at_ms <= now_ms:
        return approval_pb2.APPROVAL_STATE_EXPIRED
    if not approvable(record):
        return approval_pb2.APPROVAL_STATE_VOID
    if approval.decision is ApprovalDecision.APPROVED:
        return approval_pb2.APPROVAL_STATE_APPROVED
    return approval_pb2.APPROVAL_STATE_PENDING
