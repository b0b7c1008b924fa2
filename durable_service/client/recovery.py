"""Claiming one task by its id: to run it, or to settle what is open in it."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from durable_service.client.actions import STATES, Action, action_of
from durable_service.client.calls import Calls
from durable_service.client.connectors.base import Connector
from durable_service.client.lease_calls import LeaseCalls
from durable_service.client.methods import CLAIM_FOR_RECOVERY, CLAIM_TASK, LIST_ACTIONS, RELEASE_TASK
from durable_service.client.reconciliation import Reconciler
from durable_service.client.times import duration_ms
from durable_service.core.states import OPEN
from sealwork.durable.v1 import action_service_pb2 as actions_pb
from sealwork.durable.v1 import worker_service_pb2 as pb

_PAGE: Final = 100
_REASONS: Final = {
    pb.NOT_CLAIMABLE_REASON_TERMINAL: "terminal",
    pb.NOT_CLAIMABLE_REASON_LEASED: "leased",
    pb.NOT_CLAIMABLE_REASON_AWAITING_APPROVAL: "awaiting-approval",
    pb.NOT_CLAIMABLE_REASON_RECOVERY_ONLY: "recovery-only",
    pb.NOT_CLAIMABLE_REASON_NOT_BEFORE: "not-before",
    pb.NOT_CLAIMABLE_REASON_NOTHING_TO_RECOVER: "nothing-to-recover",
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


async def claim_task(calls: Calls, task_id: str, worker_id: str) -> pb.ClaimedTask | NotClaimed:
    """Claim a task to run it.

    Raises:
        DurableError: The service refused.
    """
    request = pb.ClaimTaskRequest(task_id=task_id, claim_id=uuid.uuid4().hex, worker_id=worker_id)
    answer = await calls.call(CLAIM_TASK, request)
    if answer.HasField("stopped"):
        return NotClaimed(task_id, "stopped")
    return _claimed(task_id, answer)


async def claim_for_recovery(calls: Calls, task_id: str, worker_id: str) -> pb.ClaimedTask | NotClaimed:
    """Claim a task to settle what is open in it; its handler must not run.

    Raises:
        DurableError: The service refused.
    """
    request = pb.ClaimForRecoveryRequest(task_id=task_id, claim_id=uuid.uuid4().hex, worker_id=worker_id)
    return _claimed(task_id, await calls.call(CLAIM_FOR_RECOVERY, request))


async def reconcile_all(calls: LeaseCalls, connectors: Iterable[Connector]) -> Sequence[Action]:
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
        for action in await open_actions(calls.unary, calls.held.task_id):
            connector = by_version.get(action.connector_version)
            settled.append(action if connector is None else await reconciler.reconcile(action, connector))
    finally:
        await calls.call(RELEASE_TASK, pb.ReleaseTaskRequest(), "release_task")
    return settled


async def open_actions(calls: Calls, task_id: str) -> list[Action]:
    """Return the actions whose outcome is open, with their arguments.

    Raises:
        DurableError: The service refused.
    """
    found: list[Action] = []
    request = actions_pb.ListActionsRequest(
        task_id=task_id, states=[STATES[each] for each in OPEN], include_args=True, page_size=_PAGE
    )
    while True:
        page = await calls.call(LIST_ACTIONS, request)
        found.extend(map(action_of, page.actions))
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return found


def _claimed(task_id: str, answer: Any) -> pb.ClaimedTask | NotClaimed:
    match answer.WhichOneof("outcome"):
        case "claimed":
            claimed: pb.ClaimedTask = answer.claimed
            return claimed
        case "not_claimable":
            obstacle: pb.NotClaimable = answer.not_claimable
            return NotClaimed(
                task_id,
                _REASONS.get(obstacle.reason, "unknown"),
                duration_ms(obstacle.retry_after) if obstacle.HasField("retry_after") else None,
                tuple(obstacle.approval_ids),
                tuple(obstacle.action_ids),
            )
        case _:
            return NotClaimed(task_id, "unknown")
