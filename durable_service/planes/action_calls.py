"""The ledger of outside effects."""

from collections.abc import Callable
from typing import Final, TypeVar

from durable_service import audit
from durable_service.admission import Operation, facts_of
from durable_service.caller import Caller, for_caller, visible
from durable_service.core import actions
from durable_service.core.actions import (
    ActionRequest,
    AlreadyConfirmed,
    ApprovalRequest,
    Dispatch,
    DispatchAnswer,
    Suspended,
    action_of,
)
from durable_service.core.canonical_json_reader import parse_canonical
from durable_service.core.errors import DomainError, Reason
from durable_service.core.guards import held_lease
from durable_service.core.identifiers import checked_repeat_id
from durable_service.core.model import Action, Holder, TaskRecord
from durable_service.core.reconciliation import Evidence, Finding, reconcile
from durable_service.core.step import Decision
from durable_service.planes.action_messages import REJECTIONS, action_message, approval_message
from durable_service.planes.admission_desk import journaled
from durable_service.planes.convert import (
    ACTION_STATE_OF,
    ACTION_STATES,
    holder_of,
    milliseconds_of,
    status_message,
    timestamp_of,
)
from durable_service.planes.page_tokens import PageTokens
from durable_service.planes.parts import Parts
from durable_service.planes.task_calls import PAGE_BYTES
from durable_service.planes.validation import Checks, check_lease
from sealwork.durable.v1 import action_service_pb2, lease_pb2

Answer = TypeVar("Answer")

FINDINGS: Final = {
    action_service_pb2.FINDING_CONFIRMED: Finding.CONFIRMED,
    action_service_pb2.FINDING_ABSENT: Finding.ABSENT,
    action_service_pb2.FINDING_UNKNOWN: Finding.UNKNOWN,
}


class ActionCalls:
    """The calls of ActionService."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._store = parts.store

    async def prepare_action(
        self, caller: Caller, request: action_service_pb2.PrepareActionRequest
    ) -> action_service_pb2.PrepareActionResponse:
        check_lease(request.lease)
        asked = ActionRequest(
            request.action_id,
            request.connector_version,
            request.destination,
            parse_canonical(request.args, "args"),
            self._approval(request),
        )
        created = False

        def command(record: TaskRecord, holder: Holder, now_ms: int) -> Decision[Action]:
            nonlocal created
            created = request.action_id not in record.actions
            return actions.prepare(record, holder, asked, now_ms)

        decision = await self._write(caller, request.lease, command)
        record, action = decision.record, decision.answer
        response = action_service_pb2.PrepareActionResponse(
            action=action_message(record, action, with_args=True),
            created=created,
            status=status_message(record),
        )
        if action.approval_id is not None:
            approval = record.approvals[action.approval_id]
            response.approval.CopyFrom(approval_message(record, approval, await self._store.now_ms()))
        return response

    async def begin_dispatch(
        self, caller: Caller, request: action_service_pb2.BeginDispatchRequest
    ) -> action_service_pb2.BeginDispatchResponse:
        def command(record: TaskRecord, holder: Holder, now_ms: int) -> Decision[DispatchAnswer]:
            return actions.begin_dispatch(
                record, holder, request.action_id, request.dispatch_id, request.connector_version, now_ms
            )

        admission_id = await self._admitted(caller, request.lease)
        decision = await self._write(caller, request.lease, command, admission_id)
        return _begun(decision.record, request.action_id, decision.answer)

    async def confirm_action(
        self, caller: Caller, request: action_service_pb2.ConfirmActionRequest
    ) -> action_service_pb2.ConfirmActionResponse:
        checked_repeat_id(request.dispatch_id, "dispatchId")

        def command(record: TaskRecord, holder: Holder, now_ms: int) -> Decision[Action]:
            return actions.confirm(
                record, holder, request.action_id, request.result_ref, now_ms, dispatch_id=request.dispatch_id
            )

        decision = await self._write(caller, request.lease, command)
        return action_service_pb2.ConfirmActionResponse(
            action_state=ACTION_STATES[decision.answer.state], status=status_message(decision.record)
        )

    async def mark_action_unknown(
        self, caller: Caller, request: action_service_pb2.MarkActionUnknownRequest
    ) -> action_service_pb2.MarkActionUnknownResponse:
        checked_repeat_id(request.dispatch_id, "dispatchId")

        def command(record: TaskRecord, holder: Holder, now_ms: int) -> Decision[Action]:
            return actions.mark_unknown(
                record, holder, request.action_id, now_ms, dispatch_id=request.dispatch_id
            )

        decision = await self._write(caller, request.lease, command)
        return action_service_pb2.MarkActionUnknownResponse(
            action_state=ACTION_STATES[decision.answer.state], status=status_message(decision.record)
        )

    async def withdraw_dispatch(
        self, caller: Caller, request: action_service_pb2.WithdrawDispatchRequest
    ) -> action_service_pb2.WithdrawDispatchResponse:
        checked_repeat_id(request.dispatch_id, "dispatchId")

        def command(record: TaskRecord, holder: Holder, now_ms: int) -> Decision[Action]:
            return actions.abort_dispatch(
                record, holder, request.action_id, now_ms, dispatch_id=request.dispatch_id
            )

        decision = await self._write(caller, request.lease, command)
        return action_service_pb2.WithdrawDispatchResponse(
            action_state=ACTION_STATES[decision.answer.state], status=status_message(decision.record)
        )

    async def reconcile_action(
        self, caller: Caller, request: action_service_pb2.ReconcileActionRequest
    ) -> action_service_pb2.ReconcileActionResponse:
        checks = Checks()
        checks.known("finding", request.finding, FINDINGS)
        checks.raise_faults()
        evidence = Evidence(
            FINDINGS[request.finding],
            request.evidence_ref,
            request.result_ref if request.HasField("result_ref") else None,
        )

        def command(record: TaskRecord, holder: Holder, now_ms: int) -> Decision[Action]:
            action = record.actions.get(request.action_id)
            if action is not None and action.connector_version != request.connector_version:
                raise DomainError(
                    Reason.CONNECTOR_VERSION, "the action was prepared for another connector version"
                )
            return reconcile(record, holder, request.action_id, request.prepared_hash, evidence, now_ms)

        decision = await self._write(caller, request.lease, command)
        if decision.written:
            audit.note(
                caller,
                "action_reconciled",
                decision.record,
                action=request.action_id,
                finding=evidence.finding,
            )
        return action_service_pb2.ReconcileActionResponse(
            action=action_message(decision.record, decision.answer, with_args=False),
            status=status_message(decision.record),
        )

    async def list_actions(
        self, caller: Caller, request: action_service_pb2.ListActionsRequest
    ) -> action_service_pb2.ListActionsResponse:
        checks = Checks()
        size = checks.page(request.page_size)
        checks.identifier("task_id", request.task_id)
        checks.count("states", len(request.states), 0, len(ACTION_STATE_OF))
        for index, state in enumerate(request.states[: len(ACTION_STATE_OF)]):
            checks.known(f"states[{index}]", state, ACTION_STATE_OF)
        checks.raise_faults()
        question = [request.task_id, *(str(state) for state in request.states)]
        tokens = PageTokens("ListActions", caller, *question)
        mark = tokens.mark(request.page_token, int)
        record = visible(caller, await self._store.get(caller.key(request.task_id)))
        # Actions are never removed and keep the order in which they were prepared, so a place is a position.
        place = int(mark[0]) if mark else 0
        response = action_service_pb2.ListActionsResponse()
        room = PAGE_BYTES
        wanted = {ACTION_STATE_OF[state] for state in request.states}
        for number, action in enumerate(tuple(record.actions.values())[max(0, place) :], max(0, place)):
            if wanted and action.state not in wanted:
                continue
            message = action_message(record, action, with_args=request.include_args)
            room -= message.ByteSize()
            if len(response.actions) == size or (room < 0 and response.actions):
                response.next_page_token = tokens.token(number)
                break
            response.actions.append(message)
        return response

    def _approval(self, request: action_service_pb2.PrepareActionRequest) -> ApprovalRequest | None:
        if not request.HasField("approval"):
            return None
        checks = Checks()
        checks.instant("approval.expire_time", request.approval.expire_time, whole_ms=True)
        checks.raise_faults()
        return ApprovalRequest(
            self._parts.new_id(),
            request.approval.approver_id,
            milliseconds_of(request.approval.expire_time),
        )

    async def _write(
        self,
        caller: Caller,
        lease: lease_pb2.LeaseRef,
        command: Callable[[TaskRecord, Holder, int], Decision[Answer]],
        admission_id: str | None = None,
    ) -> Decision[Answer]:
        check_lease(lease)
        holder = holder_of(caller, lease)
        mutate = for_caller(caller, lambda record, now_ms: command(record, holder, now_ms))
        return await self._store.update(caller.key(lease.task_id), journaled(mutate, admission_id))

    async def _admitted(self, caller: Caller, lease: lease_pb2.LeaseRef) -> str | None:
        check_lease(lease)
        desk = self._parts.admission
        if not desk.asks:
            return None
        record = visible(caller, await self._store.get(caller.key(lease.task_id)))
        # A holder that has lost its lease has to stop, whatever the policy would say.
        held_lease(record, holder_of(caller, lease), await self._store.now_ms())
        return await desk.admit(Operation.BEGIN_DISPATCH, caller, facts_of(record))


def _begun(
    record: TaskRecord, action_id: str, answer: DispatchAnswer
) -> action_service_pb2.BeginDispatchResponse:
    response = action_service_pb2.BeginDispatchResponse(status=status_message(record))
    if isinstance(answer, Dispatch):
        response.dispatch.action.CopyFrom(action_message(record, answer.action, with_args=True))
    elif isinstance(answer, AlreadyConfirmed):
        response.already_confirmed.result_ref = answer.result_ref
    elif isinstance(answer, Suspended):
        response.suspended.approval_id = answer.approval_id
        expires_at_ms = record.approvals[answer.approval_id].expires_at_ms
        response.suspended.expire_time.CopyFrom(timestamp_of(expires_at_ms))
    else:
        response.rejected.reason = REJECTIONS[answer.cause]
        response.rejected.approval_id = action_of(record, action_id).approval_id or ""
    return response
