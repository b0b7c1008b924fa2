"""Settling open outcomes: the connector looks, the service writes down what it found."""

from durable_service.client.actions import Action, action_of
from durable_service.client.connectors.base import Absent, Finding, Found
from durable_service.client.connectors.lease_binding import AnyConnector, bound_to, tell_settled
from durable_service.client.errors import RecoveryRequiredError
from durable_service.client.lease_calls import LeaseCalls
from durable_service.client.methods import RECONCILE_ACTION
from durable_service.client.records import Records
from durable_service.core.states import ActionState
from sealwork.durable.v1 import action_service_pb2 as pb


class Reconciler:
    """Writes evidence down, under one lease."""

    def __init__(self, calls: LeaseCalls) -> None:
        """Write under the lease of `calls`."""
        self._calls = calls
        self._records = Records(calls)

    async def reconcile(self, action: Action, connector: AnyConnector) -> Action:
        """Let the connector look, write down what it found, and return the action as it stands then.

        Raises:
            RecoveryRequiredError: The connector is of another version.
            LeaseLostError: The lease is lost.
            DurableError: The service refused.
            Exception: Whatever the look-up raised; nothing is changed then.
        """
        if connector.version != action.connector_version:
            raise RecoveryRequiredError(action.task_id, (action.id,))
        self._calls.held.require_held()
        bound = bound_to(connector, self._records)
        settled = await self.write(action, await bound.reconcile(action))
        if settled.state is ActionState.CONFIRMED:
            await tell_settled(bound, settled)
        return settled

    async def not_sent(self, action: Action, dispatch_id: str) -> Action:
        """Write down that a dispatch never left this worker; its evidence counts for that dispatch alone."""
        return await self.write(action, Absent(f"local:not-sent:{dispatch_id}"))

    async def write(self, action: Action, finding: Finding) -> Action:
        """Write a finding down, and return the action as it stands then.

        Raises:
            LeaseLostError: The lease is lost.
            DurableError: The service refused.
        """
        request = pb.ReconcileActionRequest(
            action_id=action.id,
            prepared_hash=action.prepared_hash,
            connector_version=action.connector_version,
            evidence_ref=finding.evidence_ref,
        )
        match finding:
            case Found():
                request.finding = pb.FINDING_CONFIRMED
                request.result_ref = finding.result_ref
            case Absent():
                request.finding = pb.FINDING_ABSENT
            case _:
                request.finding = pb.FINDING_UNKNOWN
        answer = await self._calls.settle(RECONCILE_ACTION, request)
        return action_of(answer.action)
