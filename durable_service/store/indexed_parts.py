"""What of a record stands in an index of its own, for the stores that keep indexes beside it."""

from durable_service.core.approvals import approvable
from durable_service.core.model import TaskRecord
from durable_service.core.states import ActionState, ApprovalDecision


def undecided_approvals(record: TaskRecord) -> set[str]:
    """The approvals that can still be decided, as far as the record tells."""
    if not approvable(record):
        return set()
    return {
        name for name, approval in record.approvals.items() if approval.decision is ApprovalDecision.PENDING
    }


def unknown_actions(record: TaskRecord) -> set[str]:
    """The effects of which nobody knows whether they happened."""
    return {name for name, action in record.actions.items() if action.state is ActionState.UNKNOWN}
