"""Every command in every state that a task can be found in."""

from collections.abc import Callable

import pytest

from durable_service.core.actions import (
    ActionRequest,
    abort_dispatch,
    begin_dispatch,
    confirm,
    mark_unknown,
    prepare,
)
from durable_service.core.approvals import Verdict, decide
from durable_service.core.artifacts import ArtifactContent, checkpoint_content, put_artifact, put_checkpoint
from durable_service.core.budgets import reserve
from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.claims import Claimed, ClaimRequest, NotClaimable, claim, claim_for_recovery
from durable_service.core.errors import DomainError
from durable_service.core.extensions import update_extension
from durable_service.core.journal import append_event
from durable_service.core.leases import release, renew, yield_task
from durable_service.core.model import Reservation
from durable_service.core.outcomes import acknowledge_cancellation, cancel, complete, fail
from durable_service.core.reconciliation import Evidence, Finding, reconcile
from durable_service.core.states import (
    ACTION_MOVES,
    TASK_MOVES,
    TERMINAL,
    ActionState,
    TaskState,
)
from durable_service.core.step import Decision

from .tasks import HELLO, Story

# Where a task may be found. `held` means that worker-1 holds it; it has the plain action `send` prepared and
# `gated`, which waits for the reviewer. `recovering` and those after it are held to recover alone.
STAGES: dict[str, Callable[[], Story]] = {}
SHA = "sha256:" + "0" * 64


def stage(make: Callable[[], Story]) -> Callable[[], Story]:
    STAGES[make.__name__] = make
    return make


@stage
def queued() -> Story:
    return Story.begin()


@stage
def held() -> Story:
    story = Story.begin()
    story.claim()
    story.prepare("send")
    return story


@stage
def free() -> Story:
    story = held()
    story.release()
    return story


@stage
def lapsed() -> Story:
    story = held()
    story.pass_ms(100)
    return story


@stage
def executing() -> Story:
    story = held()
    story.dispatch("send")
    return story


@stage
def unknown() -> Story:
    story = executing()
    story.mark_unknown("send")
    return story


@stage
def abandoned() -> Story:
    story = unknown()
    story.release()
    return story


@stage
def recovering() -> Story:
    story = abandoned()
    story.claim(recovery=True)
    return story


@stage
def recovered() -> Story:
    story = recovering()
    story.reconcile(Finding.ABSENT)
    return story


@stage
def suspended() -> Story:
    story = held()
    story.prepare("gated", approver="reviewer")
    story.dispatch("gated")
    return story


@stage
def suspended_free() -> Story:
    story = suspended()
    story.release()
    return story


@stage
def canceling() -> Story:
    story = held()
    story.cancel()
    return story


@stage
def canceling_executing() -> Story:
    story = executing()
    story.cancel()
    return story


@stage
def canceling_abandoned() -> Story:
    story = canceling_executing()
    story.release()
    return story


@stage
def canceling_recovered() -> Story:
    story = canceling_abandoned()
    story.claim(recovery=True)
    story.reconcile(Finding.ABSENT)
    return story


@stage
def completed() -> Story:
    story = held()
    story.complete("result:1")
    return story


@stage
def failed() -> Story:
    story = held()
    story.fail()
    return story


@stage
def canceled() -> Story:
    story = canceling()
    story.acknowledge()
    return story


@stage
def stopped() -> Story:
    story = held()
    story.apply(complete(story.record, story.holder, None, story.now_ms, stopped=True))
    return story


Command = Callable[[Story], Decision[object]]


def command_of(name: str) -> Command:  # noqa: C901, PLR0911, PLR0912 - a table
    match name:
        case "claim":
            return lambda s: claim(s.record, ClaimRequest("worker-2", "other", 100), s.now_ms)
        case "recover":
            return lambda s: claim_for_recovery(s.record, ClaimRequest("worker-2", "other", 100), s.now_ms)
        case "renew":
            return lambda s: renew(s.record, s.holder, 100, s.now_ms)
        case "release":
            return lambda s: release(s.record, s.holder, s.now_ms)
        case "yield":
            return lambda s: yield_task(s.record, s.holder, s.now_ms + 50, "later", s.now_ms)
        case "reserve":
            return lambda s: reserve(s.record, s.holder, Reservation("r", 1, 1), s.now_ms)
        case "complete":
            return lambda s: complete(s.record, s.holder, "result:2", s.now_ms)
        case "fail":
            return lambda s: fail(s.record, s.holder, "why", s.now_ms)
        case "cancel":
            return lambda s: cancel(s.record, "", s.now_ms)
        case "acknowledge":
            return lambda s: acknowledge_cancellation(s.record, s.holder, s.now_ms)
        case "prepare":
            request = ActionRequest("new", "fixture@1", "inbox", HELLO)
            return lambda s: prepare(s.record, s.holder, request, s.now_ms)
        case "dispatch":
            return lambda s: begin_dispatch(s.record, s.holder, "send", "other", "fixture@1", s.now_ms)
        case "confirm":
            return lambda s: confirm(s.record, s.holder, "send", "result:1", s.now_ms)
        case "unknown":
            return lambda s: mark_unknown(s.record, s.holder, "send", s.now_ms)
        case "reconcile":
            evidence = Evidence(Finding.ABSENT, "proof")
            return lambda s: reconcile(
                s.record, s.holder, "send", s.action("send").prepared_hash, evidence, s.now_ms
            )
        case "append":
            return lambda s: append_event(s.record, s.holder, "e", "note", CanonicalJson("1"), s.now_ms)
        case "artifact":
            content = ArtifactContent("a", SHA, 1, "text/plain", 10)
            return lambda s: put_artifact(s.record, s.holder, content, s.now_ms)
        case "checkpoint":
            content = checkpoint_content("c", SHA, 1, 10)
            return lambda s: put_checkpoint(s.record, s.holder, "c", content, s.now_ms)
        case "withdraw":
            return lambda s: abort_dispatch(s.record, s.holder, "send", s.now_ms)
        case "held_extension":
            return lambda s: update_extension(s.record, "slot", CanonicalJson("1"), s.now_ms, holder=s.holder)
        case "extension":
            return lambda s: update_extension(s.record, "slot", CanonicalJson("1"), s.now_ms)
        case "decide":
            return lambda s: decide(
                s.record,
                Verdict("approval-gated", "reviewer", s.action("gated").prepared_hash, approved=True),
                s.now_ms,
            )
    raise AssertionError(name)


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
    "artifact": dict.fromkeys(WORKING, "=") | dict.fromkeys(RECOVERING, RECOVERER),
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
