"""Claiming one task by its id: to run it, or to settle what is open in it."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from durable_service.client.actions import Action
from durable_service.client.calls import Calls
from durable_service.client.client import Client
from durable_service.client.connectors.base import Finding
from durable_service.client.connectors.lease_binding import AnyConnector
from durable_service.client.held_task import HeldTask
from durable_service.client.lease_calls import LeaseCalls
from durable_service.client.methods import CLAIM_FOR_RECOVERY, CLAIM_TASK, RELEASE_TASK
from durable_service.client.reconciliation import Reconciler
from durable_service.client.tasks import Tasks
from durable_service.client.times import duration_ms
from durable_service.core.states import OPEN
from sealwork.durable.v1 import claim_pb2
from sealwork.durable.v1 import worker_service_pb2 as pb
from service_common.client_session_types import seconds_of
from service_common.dual_calls import DualCalls

_REASONS: Final = {
    claim_pb2.NOT_CLAIMABLE_REASON_TERMINAL: "terminal",
    claim_pb2.NOT_CLAIMABLE_REASON_LEASED: "leased",
    claim_pb2.NOT_CLAIMABLE_REASON_AWAITING_APPROVAL: "awaiting-approval",
    claim_pb2.NOT_CLAIMABLE_REASON_RECOVERY_ONLY: "recovery-only",
    claim_pb2.NOT_CLAIMABLE_REASON_NOT_BEFORE: "not-before",
    claim_pb2.NOT_CLAIMABLE_REASON_NOTHING_TO_RECOVER: "nothing-to-recover",
}


@dataclass(frozen=True, slots=True)
class NotClaimed:
    """Why a task was not claimed.

    Attributes:
        task_id: The task.
        reason: `terminal`, `leased`, `awaiting-approval`, `recovery-only`, `not-before`, `stopped` (its
            attempts are used up, and this claim has ended it), `nothing-to-recover` or `unknown`.
        retry_after_ms: When asking again may help, if time alone helps.
        approval_ids: The approvals that pend.
        action_ids: The actions whose outcome is open.
    """

    task_id: str
    reason: str
    retry_after_ms: int | None = None
    approval_ids: tuple[str, ...] = ()
    action_ids: tuple[str, ...] = ()


async def claim_task(
    calls: Calls, task_id: str, worker_id: str, claim_id: str
) -> claim_pb2.ClaimedTask | NotClaimed:
    """Claim a task to run it.

    Raises:
        DurableError: The service refused.
    """
    request = pb.ClaimTaskRequest(task_id=task_id, claim_id=claim_id, worker_id=worker_id)
    answer = await calls.call(CLAIM_TASK, request)
    if answer.HasField("stopped"):
        return NotClaimed(task_id, "stopped")
    return _claimed(task_id, answer)


async def claim_for_recovery(
    calls: Calls, task_id: str, worker_id: str, claim_id: str
) -> claim_pb2.ClaimedTask | NotClaimed:
    """Claim a task to settle what is open in it; its handler must not run.

    Raises:
        DurableError: The service refused.
    """
    request = pb.ClaimForRecoveryRequest(task_id=task_id, claim_id=claim_id, worker_id=worker_id)
    return _claimed(task_id, await calls.call(CLAIM_FOR_RECOVERY, request))


async def reconcile_all(calls: LeaseCalls, connectors: Iterable[AnyConnector]) -> Sequence[Action]:
    """Settle every open action that has a connector of its version, and give the task back.

    Raises:
        LeaseLostError: The lease was lost.
        DurableError: The service refused.
        Exception: Whatever a look-up raised. The task is given back all the same.
    """
    by_version = {connector.version: connector for connector in connectors}
    reconciler = Reconciler(calls)
    settled = []
    try:
        async for action in Tasks(calls.unary).actions(calls.held.task_id, OPEN, include_args=True):
            connector = by_version.get(action.connector_version)
            settled.append(action if connector is None else await reconciler.reconcile(action, connector))
    finally:
        await calls.call(RELEASE_TASK, pb.ReleaseTaskRequest(), "release_task")
    return settled


async def settle_action(
    client: Client, task_id: str, action_id: str, finding: Finding
) -> Action | NotClaimed | None:
    """Settle one open outcome by evidence that a person has brought, and give the task back.

    Returns:
        The action as it stands then; why the task was not claimed; None when no such action is open.

    Raises:
        LeaseLostError: The lease was lost.
        DurableError: The service refused.
    """
    worker_id, sent_at = f"settling-{uuid.uuid4().hex}", client.clock.monotonic()
    claimed = await claim_for_recovery(client.calls, task_id, worker_id, uuid.uuid4().hex)
    if isinstance(claimed, NotClaimed):
        return claimed
    held = HeldTask(
        task_id,
        worker_id,
        claimed.lease.fence,
        remaining_seconds=seconds_of(claimed.lease.remaining),
        sent_at=sent_at,
        clock=client.clock,
    )
    calls = LeaseCalls(held, DualCalls(client.calls, lambda: None), client.calls)
    try:
        async for action in client.tasks.actions(task_id, OPEN):
            if action.id == action_id:
                return await Reconciler(calls).write(action, finding)
        return None
    finally:
        await calls.call(RELEASE_TASK, pb.ReleaseTaskRequest(), "release_task")
        held.end()


def _claimed(task_id: str, answer: Any) -> claim_pb2.ClaimedTask | NotClaimed:
    match answer.WhichOneof("outcome"):
        case "claimed":
            claimed: claim_pb2.ClaimedTask = answer.claimed
            return claimed
        case "not_claimable":
            obstacle: claim_pb2.NotClaimable = answer.not_claimable
            return NotClaimed(
                task_id,
                _REASONS.get(obstacle.reason, "unknown"),
                duration_ms(obstacle.retry_after) if obstacle.HasField("retry_after") else None,
                tuple(obstacle.approval_ids),
                tuple(obstacle.action_ids),
            )
        case _:
            return NotClaimed(task_id, "unknown")
