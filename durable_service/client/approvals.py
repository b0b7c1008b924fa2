"""Approvals as their approvers use them: what waits, what exactly it would do, yes or no."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from durable_service.client.actions import Action, action_of
from durable_service.client.calls import Calls
from durable_service.client.methods import (
    DECIDE_APPROVAL,
    GET_APPROVAL,
    LIST_PENDING_APPROVALS,
    WATCH_APPROVALS,
)
from durable_service.client.times import milliseconds_of
from sealwork.durable.v1 import approval_pb2
from sealwork.durable.v1 import approval_service_pb2 as pb

_PAGE: Final = 100


class ApprovalState(StrEnum):
    """Where an approval stands."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    USED = "used"
    EXPIRED = "expired"
    VOID = "void"
    UNKNOWN = "unknown"


_STATES: Final = {
    approval_pb2.ApprovalState.Value(f"APPROVAL_STATE_{state.name}"): state
    for state in ApprovalState
    if state is not ApprovalState.UNKNOWN
}


@dataclass(frozen=True, slots=True)
class Approval:
    """One person's word on one action; times in epoch milliseconds by the store's clock."""

    id: str
    task_id: str
    action_id: str
    approver_id: str
    prepared_hash: str
    state: ApprovalState
    created_at_ms: int
    expires_at_ms: int
    note: str | None = None


@dataclass(frozen=True, slots=True)
class ApprovalDetails:
    """An approval with what exactly would be done; `owner` is the actor whose task it is."""

    approval: Approval
    action: Action
    owner: str


class Approvals:
    """The approvals that are addressed to one principal's actor.

    Each method raises `DurableError` when the service refuses.
    """

    def __init__(self, calls: Calls) -> None:
        """Use these calls."""
        self._calls = calls

    async def pending(self, task_id: str = "") -> AsyncIterator[Approval]:
        """Yield what waits, those that expire first in front; of one task when it is given."""
        token = ""
        while True:
            request = pb.ListPendingApprovalsRequest(task_id=task_id, page_size=_PAGE, page_token=token)
            page = await self._calls.call(LIST_PENDING_APPROVALS, request)
            for approval in page.approvals:
                yield approval_of(approval)
            token = page.next_page_token
            if not token:
                return

    async def get(self, task_id: str, approval_id: str) -> ApprovalDetails:
        """Read one approval with the action it is about."""
        request = pb.GetApprovalRequest(task_id=task_id, approval_id=approval_id)
        answer = await self._calls.call(GET_APPROVAL, request)
        return ApprovalDetails(
            approval_of(answer.approval), action_of(answer.action), answer.identity.actor_id
        )

    async def decide(self, approval: Approval, *, approved: bool, note: str = "") -> Approval:
        """Give or refuse, for good, bound to the hash that `approval` shows; returns it as it stands then."""
        decision = pb.APPROVAL_DECISION_APPROVED if approved else pb.APPROVAL_DECISION_DENIED
        request = pb.DecideApprovalRequest(
            task_id=approval.task_id,
            approval_id=approval.id,
            prepared_hash=approval.prepared_hash,
            decision=decision,
            note=note,
            request_id=uuid.uuid4().hex,
        )
        return approval_of((await self._calls.call(DECIDE_APPROVAL, request)).approval)

    async def watch(self) -> AsyncIterator[Approval]:
        """Yield what waits, then whatever is added or changes; after a lost stream all that waits again.

        Raises:
            DurableError: It was refused.
        """
        async for frame in self._calls.watch(WATCH_APPROVALS, pb.WatchApprovalsRequest):
            for approval in frame.batch.approvals:
                yield approval_of(approval)


def approval_of(approval: approval_pb2.Approval) -> Approval:
    """Return what an approval's message tells."""
    return Approval(
        approval.approval_id,
        approval.task_id,
        approval.action_id,
        approval.approver_id,
        approval.prepared_hash,
        _STATES.get(approval.state, ApprovalState.UNKNOWN),
        milliseconds_of(approval.create_time),
        milliseconds_of(approval.expire_time),
        approval.note if approval.HasField("note") else None,
    )
