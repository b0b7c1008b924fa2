"""The ledger of one lease: every effect is written down before it is attempted, and what came of it after."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final, TypeVar

from durable_service.client.actions import Action, ActionInput, action_of
from durable_service.client.connectors.base import Connector
from durable_service.client.connectors.lease_binding import AnyConnector, bound_to, tell_settled
from durable_service.client.errors import (
    ActionRejectedError,
    ApprovalPending,
    CancelRequestedError,
    DurableError,
    LeaseLostError,
    NotSentError,
    RecoveryRequiredError,
    Rejection,
)
from durable_service.client.json_text import encode_json
from durable_service.client.lease_calls import LeaseCalls
from durable_service.client.methods import (
    BEGIN_DISPATCH,
    CONFIRM_ACTION,
    MARK_ACTION_UNKNOWN,
    PREPARE_ACTION,
    WITHDRAW_DISPATCH,
)
from durable_service.client.reconciliation import Reconciler
from durable_service.client.records import Records
from durable_service.client.stop_signal import StopCause
from durable_service.client.times import milliseconds_of, timestamp_of
from durable_service.core.errors import DomainError
from durable_service.core.identifiers import checked_identifier
from durable_service.core.states import OPEN, ActionState
from sealwork.durable.v1 import action_service_pb2 as pb

Result = TypeVar("Result")

logger = logging.getLogger("sealwork.client")

_REJECTIONS: Final = {
    pb.REJECTION_REASON_DENIED: Rejection.DENIED,
    pb.REJECTION_REASON_EXPIRED: Rejection.EXPIRED,
    pb.REJECTION_REASON_CONSUMED: Rejection.CONSUMED,
    pb.REJECTION_REASON_BINDING: Rejection.BINDING,
}


class Ledger:
    """Carries out the actions of one task under one lease.

    An execution is a task of its own: a handler that is cancelled does not cut an effect in two. Only a lost
    lease does, since nothing may happen after it.
    """

    def __init__(self, calls: LeaseCalls, *, new_id: Callable[[], str] = lambda: uuid.uuid4().hex) -> None:
        """Write under the lease of `calls`; `new_id` makes dispatch ids."""
        self._calls = calls
        self._new_id = new_id
        self._records = Records(calls)
        self._reconciler = Reconciler(calls)
        self._running: set[asyncio.Task[Any]] = set()
        calls.held.signal.listen(self._stopped)

    async def execute(self, wanted: ActionInput, connector: AnyConnector) -> str:
        """Carry an action out, or find that it was, and return where its result is kept.

        Args:
            wanted: What is to be done.
            connector: How.

        Raises:
            ApprovalPending: Its approval is pending. Let it pass: the task is suspended by it.
            ActionRejectedError: Its approval was denied, has expired or was used. It will not happen.
            RecoveryRequiredError: Whether it has happened is not known.
            CancelRequestedError: The task is to end; nothing was sent.
            LeaseLostError: The task is no longer this worker's.
            NotSentError: The connector did not send it. It may be tried again.
            DurableError: The service refused.
            ValueError: The arguments are not JSON.
            Exception: Whatever the connector raised; the outcome is unknown then.
        """
        self._calls.held.signal.raise_if_set()
        bound = bound_to(connector, self._records)
        task = asyncio.get_running_loop().create_task(self._execute(wanted, bound))
        return await self._shielded(task)

    async def reconcile(self, action: Action, connector: AnyConnector) -> Action:
        """Settle an open outcome by what the connector finds, and return the action as it stands then.

        Raises:
            RecoveryRequiredError: The connector is of another version.
            LeaseLostError: The task is no longer this worker's.
            DurableError: The service refused.
        """
        task = asyncio.get_running_loop().create_task(self._reconciler.reconcile(action, connector))
        return await self._shielded(task)

    async def quiesce(self) -> None:
        """Return once nothing runs any more, settled or failed alike."""
        while self._running:
            await asyncio.wait(self._running)

    def cut(self) -> None:
        """End what runs, at once: an effect under way is unknown from then on."""
        for task in tuple(self._running):
            task.cancel()

    # -- one execution ------------------------------------------------------------------

    async def _execute(self, wanted: ActionInput, connector: Connector) -> str:
        prepared = await self._prepare(wanted, connector.version)
        if prepared.state is ActionState.CONFIRMED:
            return prepared.result_ref or ""
        if prepared.state in OPEN or prepared.state is None:
            raise RecoveryRequiredError(prepared.task_id, (prepared.id,))
        dispatch_id = self._new_id()
        request = pb.BeginDispatchRequest(
            action_id=wanted.action_id, dispatch_id=dispatch_id, connector_version=connector.version
        )
        begun = await self._calls.settle(BEGIN_DISPATCH, request, "begin_dispatch")
        match begun.WhichOneof("outcome"):
            case "dispatch":
                return await self._dispatch(action_of(begun.dispatch.action), dispatch_id, connector)
            case "already_confirmed":
                return begun.already_confirmed.result_ref
            case "suspended":
                suspended = begun.suspended
                expires_at_ms = milliseconds_of(suspended.expire_time)
                raise ApprovalPending(wanted.action_id, suspended.approval_id, expires_at_ms)
            case "rejected":
                rejection = _REJECTIONS.get(begun.rejected.reason, Rejection.UNKNOWN)
                raise ActionRejectedError(wanted.action_id, begun.rejected.approval_id, rejection)
            case _:
                # An answer of a newer service permits nothing.
                raise RecoveryRequiredError(prepared.task_id, (prepared.id,))

    async def _prepare(self, wanted: ActionInput, connector_version: str) -> Action:
        request = pb.PrepareActionRequest(
            action_id=wanted.action_id,
            connector_version=connector_version,
            destination=wanted.destination,
            args=encode_json(wanted.args),
        )
        if wanted.approval is not None:
            request.approval.approver_id = wanted.approval.approver_id
            request.approval.expire_time.CopyFrom(timestamp_of(wanted.approval.expires_at_ms))
        answer = await self._calls.settle(PREPARE_ACTION, request, "prepare_action")
        return action_of(answer.action)

    async def _dispatch(self, action: Action, dispatch_id: str, connector: Connector) -> str:
        held = self._calls.held
        # The last look before the outside world: between the intent and here the lease may have run out by
        # the local clock, or a cancel may have arrived.
        if not held.is_held or held.signal.is_set:
            await self._withdraw(action, dispatch_id)
            held.signal.raise_if_set()
        try:
            result_ref = await connector.dispatch(action, held.signal)
            _check_result_ref(result_ref)
        except NotSentError:
            await self._not_sent(action, dispatch_id)
            raise
        except BaseException:
            await self._mark_unknown(action, dispatch_id)
            raise
        await self._confirm(action, dispatch_id, result_ref)
        # Only now: what the far side keeps is the one way back to a result that was not written down.
        await tell_settled(connector, replace(action, state=ActionState.CONFIRMED, result_ref=result_ref))
        return result_ref

    async def _confirm(self, action: Action, dispatch_id: str, result_ref: str) -> None:
        request = pb.ConfirmActionRequest(action_id=action.id, dispatch_id=dispatch_id, result_ref=result_ref)
        try:
            # Real effects are recorded, however long that takes: without this the task would stand still.
            await self._calls.settle(CONFIRM_ACTION, request, "confirm_action")
        except DurableError:
            await self._mark_unknown(action, dispatch_id)
            raise

    async def _withdraw(self, action: Action, dispatch_id: str) -> None:
        if self._calls.held.is_held:
            request = pb.WithdrawDispatchRequest(action_id=action.id, dispatch_id=dispatch_id)
            await self._attempt(self._calls.call(WITHDRAW_DISPATCH, request), action)

    async def _not_sent(self, action: Action, dispatch_id: str) -> None:
        await self._attempt(self._reconciler.not_sent(action, dispatch_id), action)

    async def _mark_unknown(self, action: Action, dispatch_id: str) -> None:
        if self._calls.held.is_held:
            request = pb.MarkActionUnknownRequest(action_id=action.id, dispatch_id=dispatch_id)
            marking = self._calls.call(MARK_ACTION_UNKNOWN, request, "mark_action_unknown")
            await self._attempt(marking, action)

    async def _attempt(self, work: Coroutine[Any, Any, object], action: Action) -> None:
        try:
            await work
        except (DurableError, LeaseLostError, CancelRequestedError, RecoveryRequiredError) as error:
            # What could not be written down is found out by the next claim: an intent without an outcome
            # is unknown from then on.
            logger.warning("the outcome of action %s could not be written down: %s", action.id, error)

    # -- what runs ----------------------------------------------------------------------

    async def _shielded(self, task: "asyncio.Task[Result]") -> Result:
        self._running.add(task)
        task.add_done_callback(self._finished)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self._calls.held.signal.cause is StopCause.LEASE_LOST:
                self._calls.held.signal.raise_if_set()
            raise

    def _finished(self, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if not task.cancelled():
            # Looked at, since a handler that was cancelled does not.
            task.exception()

    def _stopped(self, cause: StopCause) -> None:
        if cause is StopCause.LEASE_LOST:
            self.cut()


def _check_result_ref(result_ref: object) -> None:
    try:
        checked_identifier(result_ref, "result_ref")  # type: ignore[arg-type]
    except (DomainError, TypeError, AttributeError):
        raise ValueError("the connector returned no identifier as the place of its result") from None
