"""Approvals as their approvers see them: what waits, what exactly it would do, yes or no."""

from durable_service import audit
from durable_service.admission import Operation, facts_of
from durable_service.caller import Caller
from durable_service.core.approvals import Decided, Verdict, approval_for, decide
from durable_service.core.errors import DomainError, Reason
from durable_service.core.model import TaskRecord
from durable_service.core.step import Decision
from durable_service.planes.action_messages import action_message, approval_message
from durable_service.planes.admission_desk import journaled
from durable_service.planes.convert import status_message
from durable_service.planes.page_tokens import PageTokens
from durable_service.planes.parts import Parts
from durable_service.planes.task_messages import identity_message
from durable_service.planes.validation import Checks
from durable_service.store.base import ApprovalMark
from sealwork.durable.v1 import approval_service_pb2

_DECISIONS = {
    approval_service_pb2.APPROVAL_DECISION_APPROVED: True,
    approval_service_pb2.APPROVAL_DECISION_DENIED: False,
}
_AT_ONCE = 200


class ApprovalCalls:
    """The unary calls of ApprovalService."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.store
        self._admission = parts.admission

    async def list_pending_approvals(
        self, caller: Caller, request: approval_service_pb2.ListPendingApprovalsRequest
    ) -> approval_service_pb2.ListPendingApprovalsResponse:
        checks = Checks()
        size = checks.page(request.page_size)
        if request.task_id:
            checks.identifier("task_id", request.task_id)
        checks.raise_faults()
        tokens = PageTokens("ListPendingApprovals", caller, request.task_id)
        mark = tokens.mark(request.page_token, int, str)
        after = ApprovalMark(int(mark[0]), str(mark[1])) if mark else None
        response = approval_service_pb2.ListPendingApprovalsResponse()
        now_ms = await self._store.now_ms()
        while True:
            page = await self._store.pending_approvals(caller.tenant_id, caller.actor_id, after, _AT_ONCE)
            for item in page:
                if request.task_id in {"", item.key.task_id}:
                    if len(response.approvals) == size and after is not None:
                        response.next_page_token = tokens.token(after.expires_at_ms, after.approval_id)
                        return response
                    record = await self._store.get(item.key)
                    if record is not None:
                        response.approvals.append(approval_message(record, item.approval, now_ms))
                after = ApprovalMark(item.approval.expires_at_ms, item.approval.id)
            if len(page) < _AT_ONCE:
                return response

    async def get_approval(
        self, caller: Caller, request: approval_service_pb2.GetApprovalRequest
    ) -> approval_service_pb2.GetApprovalResponse:
        _check_named(request.task_id, request.approval_id)
        record = await self._store.get(caller.key(request.task_id))
        if record is None:
            raise _hidden()
        approval = approval_for(record, request.approval_id, caller.actor_id)
        now_ms = await self._store.now_ms()
        return approval_service_pb2.GetApprovalResponse(
            approval=approval_message(record, approval, now_ms),
            action=action_message(record, record.actions[approval.action_id], with_args=True),
            identity=identity_message(record.definition.identity),
        )

    async def decide_approval(
        self, caller: Caller, request: approval_service_pb2.DecideApprovalRequest
    ) -> approval_service_pb2.DecideApprovalResponse:
        _check_decision(request)
        verdict = Verdict(
            request.approval_id,
            caller.actor_id,
            request.prepared_hash,
            _DECISIONS[request.decision],
            request.note,
        )

        def mutate(record: TaskRecord, now_ms: int) -> Decision[Decided]:
            return decide(record, verdict, now_ms)

        admission_id = await self._admitted(caller, request)
        try:
            decision = await self._store.update(caller.key(request.task_id), journaled(mutate, admission_id))
        except DomainError as error:
            # Whether the task exists is nothing that an approver learns.
            raise _hidden() if error.reason is Reason.TASK_NOT_FOUND else error from None
        approval = decision.answer.approval
        if decision.written:
            audit.note(
                caller, "approval_decided", decision.record, approval=approval.id, decision=approval.decision
            )
        now_ms = await self._store.now_ms()
        return approval_service_pb2.DecideApprovalResponse(
            approval=approval_message(decision.record, approval, now_ms),
            already_decided=decision.answer.already_decided,
            status=status_message(decision.record),
        )

    async def _admitted(
        self, caller: Caller, request: approval_service_pb2.DecideApprovalRequest
    ) -> str | None:
        if not self._admission.asks:
            return None
        record = await self._store.get(caller.key(request.task_id))
        if record is None:
            raise _hidden()
        # First, so that a refusal tells nothing of approvals that are not this caller's.
        approval_for(record, request.approval_id, caller.actor_id)
        return await self._admission.admit(Operation.DECIDE, caller, facts_of(record))


def _check_decision(request: approval_service_pb2.DecideApprovalRequest) -> None:
    checks = Checks()
    checks.identifier("task_id", request.task_id)
    checks.identifier("approval_id", request.approval_id)
    checks.identifier("prepared_hash", request.prepared_hash)
    checks.known("decision", request.decision, _DECISIONS)
    if request.request_id:
        checks.label("request_id", request.request_id)
    checks.raise_faults()


def _check_named(task_id: str, approval_id: str) -> None:
    checks = Checks()
    checks.identifier("task_id", task_id)
    checks.identifier("approval_id", approval_id)
    checks.raise_faults()


def _hidden() -> DomainError:
    return DomainError(Reason.APPROVAL_NOT_FOUND, "there is no such approval for this caller")
