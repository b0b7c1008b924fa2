"""The ledger of effects, its approvals and the settling of open outcomes."""

import pytest

from durable_service.core.actions import (
    ActionRequest,
    AlreadyConfirmed,
    ApprovalRequest,
    Dispatch,
    Rejected,
    Suspended,
    abort_dispatch,
    begin_dispatch,
    confirm,
    mark_unknown,
    prepare,
)
from durable_service.core.approvals import Verdict, decide
from durable_service.core.budgets import reserve
from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.claims import Claimed
from durable_service.core.definition import Budget
from durable_service.core.errors import DomainError, Reason
from durable_service.core.model import ClaimReason, RejectionCause, Reservation
from durable_service.core.outcomes import complete
from durable_service.core.reconciliation import Evidence, Finding, reconcile
from durable_service.core.states import ActionState, ApprovalDecision, TaskState

from .tasks import HELLO, Story, reason, refused


def held(**changes: object) -> Story:
    story = Story.begin(**changes)
    story.claim()
    return story


def test_an_effect_from_intent_to_confirmation() -> None:
    story = held()
    story.prepare()
    answer = story.dispatch()
    assert isinstance(answer, Dispatch)
    assert answer.action.idempotency_key == (
        "sha256:2892a06b2514dec533ec321365e2a1f10a59e00a6962a7dcef66277f971c19fc"
    )
    assert (answer.action.state, answer.action.dispatch_fence) == (ActionState.EXECUTING, 1)
    assert story.confirm().state is ActionState.CONFIRMED
    story.complete("result:task")
    assert (story.record.revision, story.record.result_ref) == (5, "result:task")


def test_a_confirmed_effect_is_never_sent_again() -> None:
    story = held()
    story.prepare()
    story.dispatch()
    story.confirm()
    story.pass_ms(100)
    story.claim("worker-2")
    assert story.prepare().state is ActionState.CONFIRMED
    assert story.dispatch(dispatch_id="dispatch-2") == AlreadyConfirmed("result:1")


def test_the_same_dispatch_id_gets_the_same_answer() -> None:
    story = held()
    story.prepare()
    first = story.dispatch()
    revision = story.record.revision
    assert story.dispatch() == first
    assert story.record.revision == revision
    refusal = refused(lambda: story.dispatch(dispatch_id="dispatch-2"))
    assert refusal.reason is Reason.RECOVERY_REQUIRED
    assert refusal.details == {"action_ids": "send"}


def test_prepare_is_repeatable_by_hash() -> None:
    story = held()
    first = story.prepare()
    assert story.prepare() == first
    assert story.prepare(approver="reviewer") == first
    changed = ActionRequest("send", "fixture@1", "elsewhere", HELLO)
    refusal = refused(lambda: prepare(story.record, story.holder, changed, story.now_ms))
    assert refusal.reason is Reason.ACTION_MISMATCH
    assert refusal.details["existing_hash"] == (
        "sha256:be2843bde9ba5f2bfee72d7479dba9f998e5ab28ed352c5423e6c49e49bb98c7"
    )


@pytest.mark.parametrize("action_id", ["toString", "valueOf", "hasOwnProperty"])
def test_inherited_names_are_names(action_id: str) -> None:
    story = held()
    story.prepare(action_id)
    assert isinstance(story.dispatch(action_id), Dispatch)


@pytest.mark.parametrize("field", ["id", "connector_version", "destination"])
def test_what_an_effect_needs(field: str) -> None:
    story = held()
    words = {"id": "a", "connector_version": "c", "destination": "d", field: ""}
    request = ActionRequest(words["id"], words["connector_version"], words["destination"], HELLO)
    assert reason(lambda: prepare(story.record, story.holder, request, 1_000)) is Reason.INVALID_IDENTIFIER


def test_a_connector_of_another_version() -> None:
    story = held()
    story.prepare()
    refusal = reason(
        lambda: begin_dispatch(story.record, story.holder, "send", "d", "fixture@2", story.now_ms)
    )
    assert refusal is Reason.CONNECTOR_VERSION
    assert story.action().state is ActionState.PREPARED


def test_an_action_that_is_not_there() -> None:
    story = held()
    assert reason(story.dispatch) is Reason.ACTION_NOT_FOUND


def test_confirmation_is_repeatable() -> None:
    story = held()
    story.prepare()
    story.dispatch()
    first = story.confirm()
    assert story.confirm() == first
    assert reason(lambda: story.confirm(result_ref="result:2")) is Reason.ACTION_SETTLED


def test_an_effect_that_lands_after_the_cancel_is_confirmed() -> None:
    story = held()
    story.prepare()
    story.dispatch()
    story.cancel()
    assert story.confirm().state is ActionState.CONFIRMED
    assert story.complete().state is TaskState.CANCELED
    assert story.action().state is ActionState.CONFIRMED


def test_a_word_on_an_earlier_dispatch_says_nothing_of_a_later_one() -> None:
    story = held()
    story.prepare()
    story.dispatch()
    story.reconcile(Finding.ABSENT)
    story.dispatch(dispatch_id="dispatch-2")
    record, holder = story.record, story.holder
    late = "dispatch-1"
    for call in (
        lambda: confirm(record, holder, "send", "result:1", 1_000, dispatch_id=late),
        lambda: mark_unknown(record, holder, "send", 1_000, dispatch_id=late),
        lambda: abort_dispatch(record, holder, "send", 1_000, dispatch_id=late),
    ):
        assert reason(call) is Reason.ILLEGAL_TRANSITION
    now = confirm(record, holder, "send", "result:1", 1_000, dispatch_id="dispatch-2")
    assert now.answer.state is ActionState.CONFIRMED


def test_a_dispatch_that_never_began() -> None:
    story = held()
    story.prepare()
    story.dispatch()
    aborted = story.apply(abort_dispatch(story.record, story.holder, "send", story.now_ms))
    assert (aborted.state, aborted.evidence_ref) == (
        ActionState.CANCELED,
        "local:cancelled-before-dispatch",
    )
    assert abort_dispatch(story.record, story.holder, "send", story.now_ms).written is False
    assert reason(lambda: story.dispatch(dispatch_id="again")) is Reason.ACTION_SETTLED


class TestApprovals:
    def test_the_whole_way(self) -> None:
        story = Story.begin()
        story.claim()
        story.prepare(approver="reviewer")
        assert story.dispatch() == Suspended("approval-send")
        assert story.record.state is TaskState.AWAITING_APPROVAL
        story.release()
        decided = story.decide()
        assert (decided.already_decided, decided.approval.decided_at_ms) == (False, 1_000)
        answer = story.claim()
        assert isinstance(answer, Claimed)
        assert answer.reason is ClaimReason.RESUMED
        story.prepare()
        assert isinstance(story.dispatch(dispatch_id="dispatch-2"), Dispatch)
        assert story.approval().consumed
        story.confirm()
        story.complete()
        assert story.record.revision == 10
        assert [event.data for event in story.events if event.type == "task.state"] == [
            '{"before":"queued","state":"running"}',
            '{"before":"running","state":"awaiting_approval"}',
            '{"before":"awaiting_approval","state":"running"}',
            '{"before":"running","state":"completed"}',
        ]
        assert [event.attempt_id for event in story.events if event.type == "task.state"] == [
            "claim-1",
            "claim-1",
            "claim-2",
            "claim-2",
        ]

    def test_suspension_is_answered_again(self) -> None:
        story = held()
        story.prepare(approver="reviewer")
        story.dispatch()
        revision = story.record.revision
        assert story.dispatch() == Suspended("approval-send")
        assert story.record.revision == revision

    def test_only_the_named_actor_decides(self) -> None:
        story = Story.begin().suspended()
        assert reason(lambda: story.decide(actor="actor")) is Reason.APPROVAL_NOT_FOUND

    def test_the_hash_has_to_fit(self) -> None:
        story = Story.begin().suspended()
        verdict = Verdict("approval-send", "reviewer", "sha256:other", approved=True)
        assert reason(lambda: decide(story.record, verdict, 1_000)) is Reason.APPROVAL_BINDING

    def test_a_decision_is_final_and_its_repeat_is_told_so(self) -> None:
        story = Story.begin().suspended()
        story.decide()
        assert story.decide().already_decided
        assert reason(lambda: story.decide(approved=False)) is Reason.APPROVAL_DECIDED
        story.cancel()
        assert story.decide().already_decided

    def test_a_late_decision(self) -> None:
        story = Story.begin().suspended()
        story.now_ms = 5_000
        assert reason(story.decide) is Reason.APPROVAL_BINDING

    def test_nothing_is_left_to_approve(self) -> None:
        story = Story.begin().suspended()
        story.cancel()
        assert story.record.state is TaskState.CANCELED
        assert reason(story.decide) is Reason.NOT_APPROVABLE
        assert story.approval().decision is ApprovalDecision.PENDING

    def test_a_decision_before_the_suspension(self) -> None:
        story = held()
        story.prepare(approver="reviewer")
        story.decide()
        assert isinstance(story.dispatch(), Dispatch)
        assert story.record.state is TaskState.RUNNING

    @pytest.mark.parametrize(
        ("approved", "dispatched_at_ms", "cause"),
        [
            (False, 1_000, RejectionCause.APPROVAL_DENIED),
            (True, 5_000, RejectionCause.APPROVAL_EXPIRED),
            (None, 5_000, RejectionCause.APPROVAL_EXPIRED),
        ],
    )
    def test_rejection(self, approved: bool | None, dispatched_at_ms: int, cause: RejectionCause) -> None:
        story = Story.begin().suspended()
        if approved is not None:
            story.decide(approved=approved)
        story.now_ms = dispatched_at_ms
        story.claim()
        assert story.dispatch(dispatch_id="late") == Rejected(cause)
        assert story.action().state is ActionState.REJECTED
        assert story.approval().consumed is False
        assert story.dispatch(dispatch_id="late") == Rejected(cause)
        # A handler that runs again is told the same as before.
        story.pass_ms(100)
        story.claim("worker-2")
        assert story.dispatch(dispatch_id="later") == Rejected(cause)
        assert story.complete().state is TaskState.COMPLETED

    def test_every_pending_approval_blocks(self) -> None:
        story = held()
        story.prepare("one", approver="reviewer")
        story.prepare("two", approver="reviewer")
        story.dispatch("one")
        story.release()
        story.decide(action_id="one")
        answer = story.claim()
        assert getattr(answer, "ids", None) == ("approval-two",)
        story.decide(action_id="two", approved=False)
        assert isinstance(story.claim(), Claimed)

    def test_an_expiry_in_the_past(self) -> None:
        story = held()
        assert reason(lambda: story.prepare(approver="reviewer", until=1_000)) is Reason.APPROVAL_EXPIRY
        assert story.record.actions == {}

    def test_an_approver_needs_a_name(self) -> None:
        story = held()
        request = ActionRequest("send", "c", "d", HELLO, ApprovalRequest("a", "", 5_000))
        assert (
            reason(lambda: prepare(story.record, story.holder, request, 1_000)) is Reason.INVALID_IDENTIFIER
        )

    def test_a_suspended_task_is_not_completed(self) -> None:
        story = held()
        story.prepare(approver="reviewer")
        refusal = refused(story.complete)
        assert (refusal.reason, refusal.details) == (Reason.RECOVERY_REQUIRED, {"action_ids": "send"})


class TestReconciliation:
    def crashed(self, approver: str | None = None) -> Story:
        story = Story.begin()
        story.claim()
        story.prepare(approver=approver)
        if approver is not None:
            story.decide()
        story.dispatch()
        story.pass_ms(100)
        story.claim("operator", recovery=True)
        return story

    def test_confirmed(self) -> None:
        story = self.crashed()
        settled = story.reconcile(Finding.CONFIRMED)
        assert (settled.state, settled.result_ref, settled.evidence_ref) == (
            ActionState.CONFIRMED,
            "result:found",
            "evidence:1",
        )
        assert story.reconcile(Finding.CONFIRMED) == settled
        assert reason(lambda: story.reconcile(Finding.ABSENT)) is Reason.NOT_UNKNOWN

    def test_absent_is_sent_again_under_the_same_key(self) -> None:
        story = self.crashed()
        key = story.action().idempotency_key
        assert story.reconcile(Finding.ABSENT).state is ActionState.PREPARED
        assert story.reconcile(Finding.ABSENT).state is ActionState.PREPARED
        story.release()
        story.claim()
        answer = story.dispatch(dispatch_id="dispatch-2")
        assert isinstance(answer, Dispatch)
        assert (answer.action.idempotency_key, answer.action.evidence_ref) == (key, "evidence:1")

    def test_a_late_repeat_of_absence_does_not_release_the_next_dispatch(self) -> None:
        story = self.crashed()
        story.reconcile(Finding.ABSENT)
        story.release()
        story.claim()
        story.dispatch(dispatch_id="dispatch-2")
        assert reason(lambda: story.reconcile(Finding.ABSENT)) is Reason.NOT_UNKNOWN
        assert story.action().state is ActionState.EXECUTING

    def test_absent_after_a_used_approval_is_rejected(self) -> None:
        story = self.crashed(approver="reviewer")
        assert story.reconcile(Finding.ABSENT).state is ActionState.PREPARED
        story.release()
        story.claim()
        answer = story.dispatch(dispatch_id="dispatch-2")
        assert answer == Rejected(RejectionCause.APPROVAL_CONSUMED)

    def test_absent_while_executing_goes_both_steps(self) -> None:
        story = held()
        story.prepare()
        story.dispatch()
        assert story.reconcile(Finding.ABSENT).state is ActionState.PREPARED
        assert story.types()[-2:] == ["action.unknown", "action.prepared"]

    def test_absent_while_cancelling(self) -> None:
        story = held()
        story.prepare()
        story.dispatch()
        story.cancel()
        assert story.reconcile(Finding.ABSENT).state is ActionState.CANCELED
        assert story.acknowledge().state is TaskState.CANCELED

    def test_still_unknown(self) -> None:
        story = self.crashed()
        looked = story.reconcile(Finding.UNKNOWN, "lookup:1")
        assert (looked.state, looked.evidence_ref) == (ActionState.UNKNOWN, "lookup:1")
        revision = story.record.revision
        story.reconcile(Finding.UNKNOWN, "lookup:1")
        assert story.record.revision == revision
        assert story.reconcile(Finding.CONFIRMED, "lookup:1").state is ActionState.CONFIRMED

    def test_nothing_to_reconcile(self) -> None:
        story = held()
        story.prepare()
        assert reason(lambda: story.reconcile(Finding.CONFIRMED)) is Reason.NOT_UNKNOWN

    @pytest.mark.parametrize(
        ("evidence", "why"),
        [
            (Evidence(Finding.ABSENT, ""), Reason.INVALID_IDENTIFIER),
            (Evidence(Finding.CONFIRMED, "e"), Reason.INVALID_IDENTIFIER),
            (Evidence(Finding.ABSENT, "e", "r"), Reason.FIELD_INVALID),
        ],
    )
    def test_what_is_no_evidence(self, evidence: Evidence, why: Reason) -> None:
        story = self.crashed()
        bound = story.action().prepared_hash
        call = lambda: reconcile(story.record, story.holder, "send", bound, evidence, story.now_ms)  # noqa: E731
        assert reason(call) is why

    def test_evidence_about_another_effect(self) -> None:
        story = self.crashed()
        evidence = Evidence(Finding.ABSENT, "e")
        call = lambda: reconcile(story.record, story.holder, "send", "sha256:x", evidence, story.now_ms)  # noqa: E731
        assert reason(call) is Reason.ACTION_MISMATCH


class TestOutcomes:
    def test_the_first_reason_to_cancel_stays(self) -> None:
        story = held()
        assert story.cancel("first").requested
        assert story.cancel("second").requested is False
        assert story.record.cancel_reason == "first"

    def test_a_reason_that_nobody_gave(self) -> None:
        story = held()
        story.cancel()
        assert story.record.cancel_reason == "Host requested cancellation"

    def test_long_texts_are_cut(self) -> None:
        story = held()
        story.fail("é" * 4_000)
        assert story.record.failure == "é" * 2_048

    def test_a_repeated_end(self) -> None:
        story = held()
        story.complete("result:1")
        revision = story.record.revision
        assert story.complete("result:1").state is TaskState.COMPLETED
        assert story.record.revision == revision
        assert reason(lambda: story.complete("result:2")) is Reason.LEASE_LOST
        assert reason(story.fail) is Reason.LEASE_LOST

    def test_an_empty_result_is_none(self) -> None:
        story = held()
        story.complete("")
        assert story.record.result_ref is None

    def test_stopping(self) -> None:
        story = held()
        answer = story.apply(complete(story.record, story.holder, None, 1_000, stopped=True))
        assert answer.state is TaskState.STOPPED

    def test_a_prepared_effect_does_not_keep_a_task_from_its_end(self) -> None:
        story = held()
        story.prepare()
        assert story.complete().state is TaskState.COMPLETED
        assert story.action().state is ActionState.PREPARED

    def test_cancelling_a_finished_task_changes_its_revision_alone(self) -> None:
        story = held()
        story.complete()
        revision = story.record.revision
        assert story.cancel("late").requested is False
        assert (story.record.state, story.record.revision) == (TaskState.COMPLETED, revision + 1)
        assert story.record.cancel_reason is None


class TestBudget:
    def reserve(self, story: Story, name: str, tokens: int, cost: int) -> Reservation:
        return story.apply(reserve(story.record, story.holder, Reservation(name, tokens, cost), story.now_ms))

    def test_exactly_the_budget(self) -> None:
        story = held()
        self.reserve(story, "one", 10, 20)
        self.reserve(story, "nothing", 0, 0)
        refusal = refused(lambda: self.reserve(story, "two", 1, 0))
        assert (refusal.reason, refusal.details) == (Reason.BUDGET_EXHAUSTED, {"budget": "tokens"})
        refusal = refused(lambda: self.reserve(story, "two", 1, 1))
        assert refusal.details == {"budget": "tokens,cost"}
        assert (story.record.reserved_tokens, story.record.reserved_cost_micros) == (10, 20)
        assert story.complete().state is TaskState.COMPLETED

    def test_a_handler_that_runs_again_does_not_pay_twice(self) -> None:
        story = held()
        self.reserve(story, "one", 7, 7)
        story.pass_ms(100)
        story.claim("worker-2")
        self.reserve(story, "one", 7, 7)
        assert story.record.reserved_tokens == 7
        assert reason(lambda: self.reserve(story, "one", 7, 8)) is Reason.REQUEST_ID_REUSED

    @pytest.mark.parametrize(("tokens", "cost"), [(-1, 0), (0, -1), (2**53, 0)])
    def test_odd_amounts(self, tokens: int, cost: int) -> None:
        story = held()
        with pytest.raises(DomainError) as refusal:
            self.reserve(story, "one", tokens, cost)
        assert refusal.value.reason is Reason.INVALID_INTEGER


def test_a_full_task_can_still_end() -> None:
    story = held(budget=Budget(), input=CanonicalJson('"' + "x" * 1_999_200 + '"'))
    assert reason(lambda: story.prepare("x" * 400)) is Reason.TASK_TOO_LARGE
    story.fail("y" * 4_000)
    assert story.record.state is TaskState.FAILED
