"""Every command in every state that a task can be found in."""

import pytest

from durable_service.core.claims import Claimed, NotClaimable
from durable_service.core.errors import DomainError
from durable_service.core.states import (
    ACTION_MOVES,
    TASK_MOVES,
    TERMINAL,
    ActionState,
    TaskState,
)

from .stages import STAGES, Command, command_of
from .tasks import Story

# Rows: commands. A cell is the state of the task afterwards, "=" for "done and the state is as it was",
# a refusal in capitals, or why a claim was not granted in brackets.
LEASED = "(leased)"
OVER = "(terminal)"
LOST = "LEASE_LOST"
OPEN = "RECOVERY_REQUIRED"
CANCELING = "CANCEL_REQUESTED"
# The lease is to recover, and this is the work itself.
RECOVERER = "TASK_NOT_RUNNING"
WORKING = ["held", "executing", "unknown", "suspended", "canceling", "canceling_executing"]
RECOVERING = ["recovering", "recovered", "canceling_recovered"]
TABLE: dict[str, dict[str, str]] = {
    "claim": {
        "queued": "running",
        "held": LEASED,
        "free": "=",
        "lapsed": "=",
        "executing": LEASED,
        "unknown": LEASED,
        "abandoned": "(recovery_only)",
        "suspended": LEASED,
        "suspended_free": "(awaiting_approval)",
        "canceling": LEASED,
        "canceling_executing": LEASED,
        "canceling_abandoned": "(recovery_only)",
        "completed": OVER,
        "failed": OVER,
        "canceled": OVER,
        "stopped": OVER,
        "recovering": LEASED,
        "recovered": LEASED,
        "canceling_recovered": LEASED,
    },
    "recover": {
        "queued": "(nothing_to_recover)",
        "held": LEASED,
        "free": "(nothing_to_recover)",
        "lapsed": "(nothing_to_recover)",
        "executing": LEASED,
        "unknown": LEASED,
        "abandoned": "=",
        "suspended": LEASED,
        "suspended_free": "(nothing_to_recover)",
        "canceling": LEASED,
        "canceling_executing": LEASED,
        "canceling_abandoned": "=",
        "completed": OVER,
        "failed": OVER,
        "canceled": OVER,
        "stopped": OVER,
        "recovering": LEASED,
        "recovered": LEASED,
        "canceling_recovered": LEASED,
    },
    "renew": {
        "held": "=",
        "executing": "=",
        "unknown": "=",
        "suspended": "=",
        "canceling": "=",
        "canceling_executing": "=",
        "recovering": "=",
        "recovered": "=",
        "canceling_recovered": "=",
    },
    "release": {
        "held": "=",
        "free": "=",
        "executing": "=",
        "unknown": "=",
        "abandoned": "=",
        "suspended": "=",
        "suspended_free": "=",
        "canceling": "canceled",
        "canceling_executing": "=",
        "canceling_abandoned": "=",
        "completed": "=",
        "failed": "=",
        "canceled": "=",
        "stopped": "=",
        "recovering": "=",
        "recovered": "=",
        "canceling_recovered": "canceled",
    },
    "yield": {
        "held": "=",
        "executing": OPEN,
        "unknown": OPEN,
        "suspended": "TASK_NOT_RUNNING",
        "canceling": CANCELING,
        "canceling_executing": CANCELING,
        "recovering": RECOVERER,
        "recovered": RECOVERER,
        "canceling_recovered": RECOVERER,
    },
    "reserve": {
        "held": "=",
        "executing": "=",
        "unknown": "=",
        "suspended": "TASK_NOT_RUNNING",
        "canceling": CANCELING,
        "canceling_executing": CANCELING,
        "recovering": RECOVERER,
        "recovered": RECOVERER,
        "canceling_recovered": RECOVERER,
    },
    "complete": {
        "held": "completed",
        "executing": OPEN,
        "unknown": OPEN,
        "suspended": "TASK_NOT_RUNNING",
        "canceling": "canceled",
        "canceling_executing": OPEN,
        # A repeat by the one whose end was answered with `canceled`.
        "canceled": "=",
        "recovering": RECOVERER,
        "recovered": RECOVERER,
        "canceling_recovered": RECOVERER,
    },
    "fail": {
        "held": "failed",
        "executing": OPEN,
        "unknown": OPEN,
        "suspended": "TASK_NOT_RUNNING",
        "canceling": "canceled",
        "canceling_executing": OPEN,
        "failed": "=",
        "canceled": "=",
        "recovering": RECOVERER,
        "recovered": RECOVERER,
        "canceling_recovered": RECOVERER,
    },
    "cancel": {
        "queued": "canceled",
        "held": "cancel_requested",
        "free": "canceled",
        "lapsed": "canceled",
        "executing": "cancel_requested",
        "unknown": "cancel_requested",
        "abandoned": "cancel_requested",
        "suspended": "cancel_requested",
        "suspended_free": "canceled",
        "canceling": "=",
        "canceling_executing": "=",
        "canceling_abandoned": "=",
        "completed": "=",
        "failed": "=",
        "canceled": "=",
        "stopped": "=",
        "recovering": "cancel_requested",
        "recovered": "cancel_requested",
        "canceling_recovered": "=",
    },
    "acknowledge": {
        "held": "CANCEL_NOT_REQUESTED",
        "executing": "CANCEL_NOT_REQUESTED",
        "unknown": "CANCEL_NOT_REQUESTED",
        "suspended": "CANCEL_NOT_REQUESTED",
        "canceling": "canceled",
        "canceling_executing": OPEN,
        "canceled": "=",
        "recovering": "CANCEL_NOT_REQUESTED",
        "recovered": "CANCEL_NOT_REQUESTED",
        "canceling_recovered": "canceled",
    },
    "prepare": {
        "held": "=",
        "executing": "=",
        "unknown": "=",
        "suspended": "TASK_NOT_RUNNING",
        "canceling": CANCELING,
        "canceling_executing": CANCELING,
        "recovering": RECOVERER,
        "recovered": RECOVERER,
        "canceling_recovered": RECOVERER,
    },
    "dispatch": {
        "held": "=",
        "executing": OPEN,
        "unknown": OPEN,
        "suspended": "TASK_NOT_RUNNING",
        "canceling": CANCELING,
        "canceling_executing": CANCELING,
        "recovering": RECOVERER,
        "recovered": RECOVERER,
        "canceling_recovered": RECOVERER,
    },
    "confirm": {
        "held": "ILLEGAL_TRANSITION",
        "executing": "=",
        "unknown": OPEN,
        "suspended": "ILLEGAL_TRANSITION",
        "canceling": "ILLEGAL_TRANSITION",
        "canceling_executing": "=",
        "recovering": RECOVERER,
        "recovered": RECOVERER,
        "canceling_recovered": RECOVERER,
    },
    "unknown": {
        "held": "ILLEGAL_TRANSITION",
        "executing": "=",
        "unknown": "=",
        "suspended": "ILLEGAL_TRANSITION",
        "canceling": "ILLEGAL_TRANSITION",
        "canceling_executing": "=",
        "recovering": RECOVERER,
        "recovered": RECOVERER,
        "canceling_recovered": RECOVERER,
    },
    "reconcile": {
        "held": "NOT_UNKNOWN",
        "executing": "=",
        "unknown": "=",
        "suspended": "NOT_UNKNOWN",
        "canceling": "NOT_UNKNOWN",
        "canceling_executing": "=",
        "recovering": "=",
        "recovered": "NOT_UNKNOWN",
        "canceling_recovered": "NOT_UNKNOWN",
    },
    "append": dict.fromkeys([*WORKING, *RECOVERING], "="),
    "artifact": dict.fromkeys([*WORKING, *RECOVERING], "="),
    "checkpoint": dict.fromkeys(WORKING, "=") | dict.fromkeys(RECOVERING, RECOVERER),
    "withdraw": dict.fromkeys(WORKING, "ILLEGAL_TRANSITION")
    | {"executing": "=", "unknown": OPEN, "canceling_executing": "="}
    | dict.fromkeys(RECOVERING, RECOVERER),
    "held_extension": dict.fromkeys(WORKING, "=") | dict.fromkeys(RECOVERING, RECOVERER),
    "extension": dict.fromkeys(STAGES, "="),
    "decide": {"suspended": "=", "suspended_free": "="},
}


CELLS = [
    (command, stage)
    for command in TABLE
    for stage in STAGES
    # A queued task has no action, and most have no approval to decide about.
    if not (command == "reconcile" and stage == "queued")
    and not (command == "decide" and not stage.startswith("suspended"))
]


@pytest.mark.parametrize(("command_name", "stage_name"), CELLS)
def test_cell(command_name: str, stage_name: str) -> None:
    story = STAGES[stage_name]()
    assert outcome(story, command_of(command_name)) == TABLE[command_name].get(stage_name, LOST)


def outcome(story: Story, command: Command) -> str:
    before = story.record.state
    try:
        answer = story.apply(command(story))
    except DomainError as refusal:
        return refusal.reason
    if isinstance(answer, NotClaimable):
        return f"({answer.why})"
    assert (
        isinstance(answer, Claimed)
        or story.record.lease is None
        or story.record.lease.worker_id == "worker-1"
    )
    return "=" if story.record.state is before else story.record.state


def test_the_moves_of_a_task() -> None:
    assert {str(state): sorted(moves) for state, moves in TASK_MOVES.items()} == {
        "queued": ["cancel_requested", "failed", "running", "stopped"],
        "running": ["awaiting_approval", "cancel_requested", "completed", "failed", "stopped"],
        "awaiting_approval": ["cancel_requested", "failed", "running", "stopped"],
        "cancel_requested": ["canceled", "failed"],
        "completed": [],
        "failed": [],
        "canceled": [],
        "stopped": [],
    }
    assert sorted(TERMINAL) == ["canceled", "completed", "failed", "stopped"]
    assert len(TaskState) == 8


def test_the_moves_of_an_action() -> None:
    assert {str(state): sorted(moves) for state, moves in ACTION_MOVES.items()} == {
        "prepared": ["awaiting_approval", "canceled", "executing", "rejected"],
        "awaiting_approval": ["canceled", "executing", "rejected"],
        "executing": ["canceled", "confirmed", "unknown"],
        "unknown": ["canceled", "confirmed", "prepared"],
        "confirmed": [],
        "rejected": [],
        "canceled": [],
    }
    assert len(ActionState) == 7
