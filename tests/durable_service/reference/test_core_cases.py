"""The eleven cases of tasks, leases, approvals and effects that every implementation has to pass."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from durable_service.core import admission, claims
from durable_service.core.actions import (
    ActionRequest,
    AlreadyConfirmed,
    Dispatch,
    Rejected,
    Suspended,
    mark_unknown,
    prepare,
)
from durable_service.core.canonical_json import CanonicalJson, canonical_json, digest
from durable_service.core.definition import Budget, TaskKey, definition_digest
from durable_service.core.errors import DomainError, Reason
from durable_service.core.extensions import update_extension
from durable_service.core.model import RejectionCause, TaskRecord
from durable_service.core.outcomes import cancel
from durable_service.core.reconciliation import Finding
from durable_service.core.states import ActionState, ApprovalDecision, TaskState
from durable_service.core.step import Decision, Step
from tests.durable_service.core.tasks import definition

from .stage import KEY, Stage


async def reason(call: Any) -> Reason:
    with pytest.raises(DomainError) as refusal:
        await call
    return refusal.value.reason


async def test_1_a_budget_that_nobody_named_is_part_of_the_digest(stage: Stage) -> None:
    plain = definition(budget=Budget())
    decision = await stage.store.create(admission.TaskCreation(plain))
    assert decision.record.digest == definition_digest(plain)
    assert decision.record.definition.budget == Budget(3, 1_000_000, 100_000_000)
    other = definition_digest(definition(budget=Budget(max_tokens=5)))
    assert other != decision.record.digest


@pytest.mark.parametrize("open_outcome", [False, True])
async def test_2_attempts_run_out(stage: Stage, open_outcome: bool) -> None:
    await stage.begin(budget=Budget(max_attempts=1))
    await stage.claim()
    if open_outcome:
        await stage.execute()
    stage.pass_ms(101)
    answer = await stage.claim("worker-2")
    record = await stage.record()
    assert len(record.attempts) == 1
    if not open_outcome:
        assert (answer, record.state) == (claims.Exhausted(), TaskState.STOPPED)
        return
    # It is not stopped over an effect of which nobody knows, and no worker is given it either.
    assert answer == claims.NotClaimable(claims.Unclaimable.RECOVERY_ONLY, ids=("send",))
    assert (record.state, record.actions["send"].state) == (TaskState.RUNNING, ActionState.UNKNOWN)


async def test_3_one_claim_wins_and_its_fence_dies_with_it(stage: Stage) -> None:
    await stage.begin()
    answers = await asyncio.gather(stage.claim("worker-1"), stage.claim("worker-2"))
    assert sorted(type(answer).__name__ for answer in answers) == ["Claimed", "NotClaimable"]
    first = stage.holder
    stage.pass_ms(100)
    answer = await stage.claim("worker-3")
    assert isinstance(answer, claims.Claimed)
    assert answer.lease.fence == 2
    stage.holder = first
    assert await reason(stage.release()) is Reason.LEASE_LOST
    assert await reason(stage.complete()) is Reason.LEASE_LOST
    assert await stage.store.get(TaskKey("other", "task")) is None


async def test_4_updates_of_a_slot_are_atomic(stage: Stage) -> None:
    await stage.begin()

    def increment(record: TaskRecord, now_ms: int) -> Decision[Any]:
        present = record.extensions.get("counter")
        count = 0 if present is None else int(present.value)
        return update_extension(record, "counter", CanonicalJson(str(count + 1)), now_ms)

    await asyncio.gather(*(stage.store.update(KEY, increment) for _ in range(20)))
    record = await stage.record()
    assert record.extensions["counter"].value == "20"

    def other_policy(record: TaskRecord, now_ms: int) -> Decision[None]:
        step = Step(record, now_ms)
        step.change(definition=replace(record.definition, policy_revision=2))
        return step.decision(None)

    async def later(record: TaskRecord, now_ms: int) -> Decision[None]:
        return Step(record, now_ms).decision(None)

    assert await reason(stage.store.update(KEY, other_policy)) is Reason.INVARIANT
    coroutines = []

    def promised(record: TaskRecord, now_ms: int) -> Any:
        coroutines.append(later(record, now_ms))
        return coroutines[-1]

    with pytest.raises((AttributeError, TypeError)):
        await stage.store.update(KEY, promised)
    for coroutine in coroutines:
        coroutine.close()
    assert await stage.record() == record


async def test_5_a_budget_is_kept_and_an_end_is_final(stage: Stage) -> None:
    await stage.begin()
    await stage.claim()
    await stage.reserve("all", 10, 20)
    assert await reason(stage.reserve("more", 1, 0)) is Reason.BUDGET_EXHAUSTED
    assert await stage.complete() is TaskState.COMPLETED
    assert await stage.claim() == claims.NotClaimable(claims.Unclaimable.TERMINAL)
    await stage.run(cancel, "late")
    assert (await stage.record()).state is TaskState.COMPLETED

    def revive(record: TaskRecord, now_ms: int) -> Decision[None]:
        return Decision(replace(record, state=TaskState.RUNNING, revision=record.revision + 1), None)

    assert await reason(stage.store.update(KEY, revive)) is Reason.ILLEGAL_TRANSITION


async def test_6_a_suspended_task_goes_on_with_its_approval_once(stage: Stage) -> None:
    await stage.begin()
    await stage.claim()
    await stage.prepare(approver="reviewer")
    assert await stage.dispatch() == Suspended("approval-send")
    await stage.release()
    assert (await stage.record()).state is TaskState.AWAITING_APPROVAL
    assert await reason(stage.decide(actor="actor")) is Reason.APPROVAL_NOT_FOUND
    assert (await stage.decide()).approval.decision is ApprovalDecision.APPROVED
    await stage.claim()
    assert isinstance(await stage.dispatch("dispatch-2"), Dispatch)
    await stage.confirm()
    # The handler asks for the same effect once more: it gets the result and sends nothing.
    await stage.prepare(approver="reviewer")
    assert await stage.dispatch("dispatch-3") == AlreadyConfirmed("result:1")
    assert await stage.complete() is TaskState.COMPLETED
    assert (await stage.record()).approvals["approval-send"].consumed


@pytest.mark.parametrize("how", ["changed", "denied", "expired"])
async def test_7_nothing_is_sent_that_was_not_approved(stage: Stage, how: str) -> None:
    await stage.begin()
    await stage.claim()
    await stage.prepare(approver="reviewer", until=1_050)
    await stage.dispatch()
    await stage.release()
    await stage.decide(approved=how != "denied")
    if how == "expired":
        stage.pass_ms(50)
    await stage.claim()
    if how == "changed":
        elsewhere = ActionRequest("send", "fixture@1", "elsewhere", CanonicalJson('{"message":"hello"}'))
        assert await reason(stage.run(prepare, stage.holder, elsewhere)) is Reason.ACTION_MISMATCH
    else:
        denied = how == "denied"
        cause = RejectionCause.APPROVAL_DENIED if denied else RejectionCause.APPROVAL_EXPIRED
        assert await stage.dispatch("dispatch-2") == Rejected(cause)
    action = await stage.action()
    assert (action.dispatch_fence is None, action.result_ref) == (how == "changed", None)
    assert action.state in {ActionState.REJECTED, ActionState.AWAITING_APPROVAL}


async def test_8_an_interrupted_dispatch_is_settled_and_not_repeated(stage: Stage) -> None:
    await stage.begin()
    await stage.claim()
    await stage.execute()
    stage.pass_ms(100)
    answer = await stage.claim("worker-2")
    assert answer == claims.NotClaimable(claims.Unclaimable.RECOVERY_ONLY, ids=("send",))
    assert isinstance(await stage.claim("reconciler", recovery=True), claims.Claimed)
    await stage.reconcile(Finding.CONFIRMED)
    await stage.release()
    assert isinstance(await stage.claim("worker-3"), claims.Claimed)
    assert await stage.execute("dispatch-2") == AlreadyConfirmed("result:found")
    assert await stage.complete() is TaskState.COMPLETED


async def test_9_a_cancel_waits_for_an_open_outcome(stage: Stage) -> None:
    await stage.begin()
    await stage.claim()
    await stage.execute()
    await stage.run(mark_unknown, stage.holder, "send")
    await stage.cancel()
    assert await reason(stage.acknowledge()) is Reason.RECOVERY_REQUIRED
    assert (await stage.record()).state is TaskState.CANCEL_REQUESTED
    await stage.reconcile(Finding.CONFIRMED)
    assert await stage.acknowledge() is TaskState.CANCELED


async def test_10_a_late_success_is_dropped_and_its_effect_is_kept(stage: Stage) -> None:
    await stage.begin()
    await stage.claim()
    await stage.execute()
    await stage.cancel()
    await stage.confirm()
    assert await stage.complete("result:task") is TaskState.CANCELED
    record = await stage.record()
    assert (record.result_ref, record.actions["send"].state) == (None, ActionState.CONFIRMED)


def test_11_digests_do_not_know_the_order_and_hosts_hand_over_no_code() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    with pytest.raises(DomainError) as refusal:
        canonical_json({"run": lambda: None})
    assert refusal.value.reason is Reason.INVALID_JSON
