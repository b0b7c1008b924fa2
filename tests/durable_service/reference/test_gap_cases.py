"""What the cases of other implementations leave out."""

import asyncio

import pytest

from durable_service.core import claims
from durable_service.core.actions import Dispatch, Rejected, Suspended
from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.definition import Budget
from durable_service.core.errors import DomainError, Reason
from durable_service.core.leases import renew
from durable_service.core.model import RejectionCause
from durable_service.core.reconciliation import Finding
from durable_service.core.states import ActionState, TaskState
from sealwork.durable.v1 import task_service_pb2

from .stage import Stage
from .test_core_cases import reason


async def held(stage: Stage) -> Stage:
    await stage.begin()
    await stage.claim()
    return stage


async def crashed(stage: Stage) -> Stage:
    """An effect is unknown, and an operator holds the task to settle it."""
    await held(stage)
    await stage.execute()
    stage.pass_ms(100)
    await stage.claim("operator", recovery=True)
    return stage


async def test_an_approval_expires_between_its_decision_and_the_dispatch(stage: Stage) -> None:
    await held(stage)
    await stage.prepare(approver="reviewer", until=1_050)
    await stage.decide()
    stage.pass_ms(50)
    assert await stage.dispatch() == Rejected(RejectionCause.APPROVAL_EXPIRED)
    assert (await stage.record()).approvals["approval-send"].consumed is False


async def test_what_is_absent_is_sent_again_under_the_same_key(stage: Stage) -> None:
    await crashed(stage)
    key = (await stage.action()).idempotency_key
    assert (await stage.reconcile(Finding.ABSENT)).state is ActionState.PREPARED
    await stage.release()
    await stage.claim("worker-2")
    answer = await stage.execute("dispatch-2")
    assert isinstance(answer, Dispatch)
    assert answer.action.idempotency_key == key


async def test_what_is_absent_needs_another_approval(stage: Stage) -> None:
    await held(stage)
    await stage.prepare(approver="reviewer")
    await stage.decide()
    await stage.dispatch()
    stage.pass_ms(100)
    await stage.claim("operator", recovery=True)
    await stage.reconcile(Finding.ABSENT)
    await stage.release()
    await stage.claim("worker-2")
    assert await stage.dispatch("dispatch-2") == Rejected(RejectionCause.APPROVAL_CONSUMED)


async def test_absence_is_said_of_an_effect_under_way(stage: Stage) -> None:
    await held(stage)
    await stage.execute()
    assert (await stage.reconcile(Finding.ABSENT)).state is ActionState.PREPARED
    assert [kind for _, kind in await stage.journal()][-2:] == ["action.unknown", "action.prepared"]


async def test_claims_to_recover_burn_no_attempt_and_the_task_finishes(stage: Stage) -> None:
    await stage.begin(budget=Budget(max_attempts=1))
    await stage.claim()
    await stage.execute()
    for _ in range(4):
        stage.pass_ms(100)
        assert isinstance(await stage.claim("operator", recovery=True), claims.Claimed)
    assert len((await stage.record()).attempts) == 1
    await stage.reconcile(Finding.CONFIRMED)
    await stage.release()
    # Not stopped: the settled outcome has earned the attempt that finishes the task.
    assert isinstance(await stage.claim("worker-2"), claims.Claimed)
    assert await stage.complete() is TaskState.COMPLETED


@pytest.mark.parametrize("cancel_first", [True, False])
async def test_a_cancel_and_a_completion_at_once(stage: Stage, cancel_first: bool) -> None:
    await held(stage)
    calls = [stage.cancel(), stage.complete("result:task")]
    await asyncio.gather(*(calls if cancel_first else reversed(calls)))
    record = await stage.record()
    assert (record.state, record.result_ref) == (
        (TaskState.CANCELED, None) if cancel_first else (TaskState.COMPLETED, "result:task")
    )


async def test_a_handler_that_swallows_its_suspension(stage: Stage) -> None:
    await held(stage)
    await stage.prepare(approver="reviewer")
    assert await stage.dispatch() == Suspended("approval-send")
    assert await reason(stage.complete()) is Reason.TASK_NOT_RUNNING
    assert await reason(stage.fail()) is Reason.TASK_NOT_RUNNING
    await stage.release()
    assert (await stage.record()).state is TaskState.AWAITING_APPROVAL
    await stage.decide()
    assert isinstance(await stage.claim("worker-2"), claims.Claimed)


async def test_an_end_that_comes_after_the_lease(stage: Stage) -> None:
    await held(stage)
    stage.pass_ms(100)
    for late in (stage.complete(), stage.fail(), stage.reserve("r", 1, 1)):
        assert await reason(late) is Reason.LEASE_LOST
    assert await reason(stage.run(renew, stage.holder, 100)) is Reason.LEASE_LOST
    record = await stage.record()
    assert (record.state, record.result_ref, record.reserved_tokens) == (TaskState.RUNNING, None, 0)


async def test_an_approval_before_anything_was_suspended(stage: Stage) -> None:
    await held(stage)
    await stage.prepare(approver="reviewer")
    await stage.decide()
    assert isinstance(await stage.dispatch(), Dispatch)
    assert (await stage.record()).state is TaskState.RUNNING


async def test_one_of_two_approvals_is_not_enough(stage: Stage) -> None:
    await held(stage)
    await stage.prepare(approver="reviewer")
    await stage.prepare("second", approver="reviewer")
    await stage.dispatch()
    await stage.release()
    await stage.decide()
    answer = await stage.claim("worker-2")
    assert isinstance(answer, claims.NotClaimable)
    assert (answer.why, answer.ids) == (claims.Unclaimable.AWAITING_APPROVAL, ("approval-second",))


async def test_a_clock_that_is_put_back_expires_nothing_and_prolongs_nothing(stage: Stage) -> None:
    await held(stage)
    stage.dial.set_by_ms = -3_600_000
    assert await stage.claim("worker-2") == claims.NotClaimable(claims.Unclaimable.LEASED, 1_100)
    await stage.execute()
    await stage.confirm()
    record = await stage.record()
    assert record.updated_at_ms == record.created_at_ms == 1_000
    # The hour does not come on top of the lease.
    stage.pass_ms(100)
    assert isinstance(await stage.claim("worker-2"), claims.Claimed)


async def test_a_full_task_keeps_moving(stage: Stage) -> None:
    """Whatever controls a task goes through when nothing that a caller chose fits any more."""
    filling = CanonicalJson('"' + "x" * 1_997_300 + '"')
    await stage.begin(budget=Budget(), input=filling)
    await stage.claim()
    await stage.prepare(approver="reviewer")
    with pytest.raises(DomainError) as refusal:
        await stage.prepare("y" * 500)
    assert refusal.value.reason is Reason.TASK_TOO_LARGE
    assert await stage.dispatch() == Suspended("approval-send")
    await stage.release()
    await stage.decide()
    await stage.claim("worker-" + "w" * 500)
    assert isinstance(await stage.dispatch("dispatch-2"), Dispatch)
    stage.pass_ms(100)
    await stage.claim("operator", recovery=True)
    await stage.reconcile(Finding.CONFIRMED, "e" * 512)
    await stage.cancel()
    assert await stage.acknowledge() is TaskState.CANCELED


async def test_a_failure_of_any_length_is_a_failure(stage: Stage) -> None:
    await held(stage)
    assert await stage.fail("x" * 3_000_000) is TaskState.FAILED
    assert (await stage.record()).failure == "x" * 4_096


def test_nothing_but_a_definition_and_its_times_can_be_asked_for() -> None:
    """No lease, no result and no journal can be smuggled in: the request has no place for them."""
    request = task_service_pb2.CreateTaskRequest.DESCRIPTOR
    assert [field.name for field in request.fields] == [
        "task_id",
        "run",
        "definition",
        "extensions",
        "start_within",
        "finish_within",
        "delay",
    ]
