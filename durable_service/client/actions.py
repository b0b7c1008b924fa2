"""Actions as a handler asks for them and as a connector gets them."""

from dataclasses import dataclass
from typing import Final

from durable_service.client.json_text import decode_json
from durable_service.client.times import milliseconds_of
from durable_service.core.canonical_json import JsonValue
from durable_service.core.states import ActionState
from sealwork.durable.v1 import action_pb2

STATES: Final = {state: action_pb2.ActionState.Value(f"ACTION_STATE_{state.name}") for state in ActionState}
_STATE_OF: Final = {number: state for state, number in STATES.items()}


@dataclass(frozen=True, slots=True)
class ApprovalNeed:
    """Somebody has to approve an action before it is carried out.

    Attributes:
        approver_id: The actor who may decide.
        expires_at_ms: Epoch milliseconds, by the store's clock. By then the action has to be dispatched, not
            just approved.
    """

    approver_id: str
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class ActionInput:
    """One effect that a handler wants.

    Attributes:
        action_id: The same whenever the handler runs again, so that a confirmed effect is found and not
            repeated. Unique in the task.
        destination: The one target that may be touched.
        args: What is to be done there, as a JSON value.
        approval: Whose word it needs; None when nobody's. What was asked first stands.
    """

    action_id: str
    destination: str
    args: JsonValue = None
    approval: ApprovalNeed | None = None


@dataclass(frozen=True, slots=True)
class Action:
    """A written-down action.

    Attributes:
        args_json: Canonical JSON; empty where it is not shown.
        idempotency_key: Stable over crashes, claims and repeats: `sha256:` and 64 hex digits.
        updated_at_ms: When its state last changed, epoch milliseconds.
    """

    task_id: str
    id: str
    state: ActionState | None
    connector_version: str
    destination: str
    args_json: bytes
    prepared_hash: str
    idempotency_key: str
    approval_id: str | None
    dispatch_fence: int | None
    result_ref: str | None
    evidence_ref: str | None
    updated_at_ms: int

    @property
    def args(self) -> JsonValue:
        """What is to be done, as a new value with every access."""
        return decode_json(self.args_json) if self.args_json else None


def action_of(action: action_pb2.Action) -> Action:
    """Return what an action's message tells; a state of a newer service is None."""
    return Action(
        task_id=action.task_id,
        id=action.action_id,
        state=_STATE_OF.get(action.state),
        connector_version=action.connector_version,
        destination=action.destination,
        args_json=action.args,
        prepared_hash=action.prepared_hash,
        idempotency_key=action.idempotency_key,
        approval_id=action.approval_id if action.HasField("approval_id") else None,
        dispatch_fence=action.dispatch_fence if action.HasField("dispatch_fence") else None,
        result_ref=action.result_ref if action.HasField("result_ref") else None,
        evidence_ref=action.evidence_ref if action.HasField("evidence_ref") else None,
        updated_at_ms=milliseconds_of(action.update_time),
    )
