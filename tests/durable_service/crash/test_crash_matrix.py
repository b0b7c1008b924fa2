"""A worker killed at every step of a task with two effects, the second of which needs an approval.

Each test says what is on the disk after the kill, what the next claim finds, and how it ends.
"""

import pytest

from durable_service.client import ActionState, Condition, Task, TaskState
from durable_service.client.actions import Action
from tests.harness.waiting import eventually

from .ground import Ground
from .kept import KINDS
from .nursery import Life

pytestmark = [pytest.mark.process, pytest.mark.parametrize("kept", KINDS, indirect=True)]


async def killed(ground: Ground, life: Life, point: str) -> None:
    assert await life.end() == -9, life.lines
    assert life.lines[-1] == f"dies {point}"


async def action(ground: Ground, action_id: str) -> Action:
    return (await ground.actions("a"))[action_id]


async def unknown_action(ground: Ground, action_id: str) -> Action:
    """The action, once it is written down that nobody knows its outcome."""

    async def unknown() -> Action | None:
        found = await action(ground, action_id)
        return found if found.state is ActionState.UNKNOWN else None

    return await eventually(unknown, 20, f"{action_id} to be unknown")


async def finished(ground: Ground, sent: list[str], *, attempts: int) -> Task:
    """Lets one worker after another go on, with the approval given, to the end."""
    await ground.pass_lease()
    while True:
        task = await ground.until("a", Condition.CLAIMABLE, Condition.APPROVAL_PENDING)
        if task.state is TaskState.COMPLETED:
            break
        if Condition.APPROVAL_PENDING in task.conditions and Condition.CLAIMABLE not in task.conditions:
            await ground.approve("a")
            continue
        life = await ground.work()
        assert await life.end() == 0, life.lines
    assert ground.sent("a") == sent
    assert task.usage is not None
    assert (task.usage.attempts, task.usage.reserved_tokens) == (attempts, 3)
    journal = await ground.journal("a")
    assert [sequence for sequence, _ in journal] == list(range(1, len(journal) + 1))
    assert [kind for _, kind in journal].count("half.done") == 1
    # Its bytes are kept beside the task.
    assert await ground.alice.records.snapshot("a", "half") == {"step": 1}
    return task


@pytest.mark.guarantee("{kept}", "A task with effects and an approval runs to its end")
async def test_a_task_whose_worker_lives(ground: Ground) -> None:
    await ground.create("a")
    life = await ground.work()
    await life.says("ended suspended")
    await finished(ground, ["plain", "gated"], attempts=2)


@pytest.mark.guarantee(
    "{kept}",
    "A worker killed before it has prepared anything: nothing is written and nothing counted twice",
)
@pytest.mark.parametrize(
    ("point", "left"),
    [
        ("Claim:after", 1),
        ("ReserveBudget:before", 1),
        ("ReserveBudget:after", 1),
        ("PrepareAction:before", 1),
    ],
)
async def test_before_anything_is_prepared(ground: Ground, point: str, left: int) -> None:
    await ground.create("a")
    await killed(ground, await ground.work(fuse=(point, left)), point)
    assert await ground.actions("a") == {}
    # Not a token is counted twice, although the handler has run twice.
    await finished(ground, ["plain", "gated"], attempts=3)


@pytest.mark.guarantee(
    "{kept}",
    "A worker killed after it prepared an effect: the next one sends it, under the same idempotency key",
)
async def test_after_the_plain_effect_is_prepared(ground: Ground) -> None:
    await ground.create("a")
    await killed(ground, await ground.work(fuse=("PrepareAction:after", 1)), "PrepareAction:after")
    prepared = await action(ground, "plain")
    assert (prepared.state, ground.sent("a")) == (ActionState.PREPARED, [])
    await finished(ground, ["plain", "gated"], attempts=3)
    assert (await action(ground, "plain")).idempotency_key == prepared.idempotency_key


@pytest.mark.guarantee(
    "{kept}",
    "A worker killed between an approval's request and the suspension: the same approval is waited for",
)
async def test_after_the_gated_effect_is_prepared_and_before_the_suspension(ground: Ground) -> None:
    await ground.create("a")
    await killed(ground, await ground.work(fuse=("PrepareAction:after", 2)), "PrepareAction:after")
    before = await action(ground, "gated")
    assert before.state is ActionState.AWAITING_APPROVAL
    # Claimable once the lease has run out, although the approval is pending.
    await ground.pass_lease()
    task = await ground.until("a", Condition.CLAIMABLE)
    assert task.state is TaskState.RUNNING
    life = await ground.work()
    await life.says("ended suspended")
    assert (await action(ground, "gated")).approval_id == before.approval_id
    await finished(ground, ["plain", "gated"], attempts=3)


@pytest.mark.guarantee("{kept}", "A worker killed after the suspension: a decision under its lease is kept")
async def test_after_the_suspension_and_before_the_release(ground: Ground) -> None:
    await ground.create("a")
    await killed(ground, await ground.work(fuse=("BeginDispatch:after", 2)), "BeginDispatch:after")
    task = await ground.task("a")
    assert (task.state, Condition.APPROVAL_PENDING in task.conditions) == (TaskState.AWAITING_APPROVAL, True)
    # Decided while the dead worker's lease may still be live; it is kept.
    await ground.approve("a")
    await finished(ground, ["plain", "gated"], attempts=2)


@pytest.mark.guarantee("{kept}", "A worker killed after the decision of an approval: the next one uses it")
async def test_after_the_decision(ground: Ground) -> None:
    await ground.create("a")
    await (await ground.work()).says("ended suspended")
    await ground.approve("a")
    await killed(ground, await ground.work(fuse=("Claim:after", 1)), "Claim:after")
    await finished(ground, ["plain", "gated"], attempts=3)


@pytest.mark.guarantee(
    "{kept}",
    "A worker killed between the intent and the effect: the outcome is unknown, nothing is sent blindly",
)
@pytest.mark.parametrize("point", ["BeginDispatch:after", "effect:before"])
async def test_after_the_intent_and_before_the_effect(ground: Ground, point: str) -> None:
    await ground.create("a")
    await killed(ground, await ground.work(fuse=(point, 1)), point)
    assert (await action(ground, "plain")).state is ActionState.EXECUTING
    await ground.pass_lease()
    await ground.until("a", Condition.RECOVERY_REQUIRED)
    unknown = await unknown_action(ground, "plain")
    assert ground.sent("a") == []
    recovery = await ground.recover("a")
    assert await recovery.end() == 0
    assert recovery.lines == ["settled plain prepared"]
    await finished(ground, ["plain", "gated"], attempts=3)
    assert (await action(ground, "plain")).idempotency_key == unknown.idempotency_key


@pytest.mark.guarantee("{kept}", "An approval is good for one intent, also for one whose worker was killed")
async def test_an_approval_is_used_up_by_an_intent_that_came_to_nothing(ground: Ground) -> None:
    await ground.create("a")
    await (await ground.work()).says("ended suspended")
    await ground.approve("a")
    await killed(ground, await ground.work(fuse=("effect:before", 1)), "effect:before")
    await ground.pass_lease()
    await ground.until("a", Condition.RECOVERY_REQUIRED)
    assert await (await ground.recover("a")).end() == 0
    last = await ground.work()
    assert await last.end() == 0
    assert "rejected consumed" in last.lines
    assert (await ground.task("a")).state is TaskState.COMPLETED
    assert ((await action(ground, "gated")).state, ground.sent("a")) == (ActionState.REJECTED, ["plain"])


@pytest.mark.guarantee(
    "{kept}", "A worker killed between the effect and its confirmation: the effect is found, never repeated"
)
@pytest.mark.parametrize("point", ["effect:after", "ConfirmAction:before"])
@pytest.mark.parametrize("action_id", ["plain", "gated"])
async def test_after_the_effect_and_before_its_confirmation(
    ground: Ground, point: str, action_id: str
) -> None:
    await ground.create("a")
    if action_id == "gated":
        await (await ground.work()).says("ended suspended")
        await ground.approve("a")
    await killed(ground, await ground.work(fuse=(point, 1)), point)
    assert ground.sent("a")[-1] == action_id
    await ground.pass_lease()
    await ground.until("a", Condition.RECOVERY_REQUIRED)
    # A worker that looks for work is given nothing: the outcome has to be settled first.
    recovery = await ground.recover("a")
    assert await recovery.end() == 0
    assert recovery.lines == [f"settled {action_id} confirmed"]
    await finished(ground, ["plain", "gated"], attempts=3)


@pytest.mark.guarantee(
    "{kept}", "A worker killed after a confirmation: the result is kept and not asked for again"
)
async def test_after_the_confirmation_and_before_the_end(ground: Ground) -> None:
    await ground.create("a")
    await killed(ground, await ground.work(fuse=("ConfirmAction:after", 1)), "ConfirmAction:after")
    confirmed = await action(ground, "plain")
    assert confirmed.state is ActionState.CONFIRMED
    await finished(ground, ["plain", "gated"], attempts=3)
    again = await action(ground, "plain")
    assert (again.result_ref, again.dispatch_fence) == (confirmed.result_ref, 1)


@pytest.mark.guarantee(
    "{kept}", "A reconciler killed during its look-up: the outcome stays unknown for the next one"
)
@pytest.mark.parametrize("point", ["lookup:before", "lookup:after"])
async def test_during_the_reconciliation(ground: Ground, point: str) -> None:
    await ground.create("a")
    await killed(ground, await ground.work(fuse=("effect:after", 1)), "effect:after")
    await ground.pass_lease()
    await ground.until("a", Condition.RECOVERY_REQUIRED)
    await killed(ground, await ground.recover("a", fuse=(point, 1)), point)
    await ground.pass_lease()
    # The lease of the dead one has to run out first.
    await ground.until_free("a")
    await unknown_action(ground, "plain")
    recovery = await ground.recover("a")
    assert await recovery.end() == 0
    assert recovery.lines == ["settled plain confirmed"]
    await finished(ground, ["plain", "gated"], attempts=3)


@pytest.mark.guarantee(
    "{kept}", "A task whose worker was killed is cancelled when its lease is over, by nobody's claim"
)
async def test_after_the_request_to_cancel(ground: Ground) -> None:
    await ground.create("a")
    await killed(ground, await ground.work(fuse=("ConfirmAction:after", 1)), "ConfirmAction:after")
    await ground.alice.tasks.cancel("a")
    await ground.pass_lease()
    task = await ground.until("a")
    assert (task.state, ground.sent("a")) == (TaskState.CANCELED, ["plain"])
    assert task.usage is not None
    # Nobody had to claim it for that.
    assert task.usage.attempts == 1


@pytest.mark.guarantee("{kept}", "A cancel waits for an open outcome")
async def test_a_cancel_waits_for_what_is_open(ground: Ground) -> None:
    await ground.create("a")
    await killed(ground, await ground.work(fuse=("effect:after", 1)), "effect:after")
    await ground.alice.tasks.cancel("a")
    await ground.pass_lease()
    task = await ground.until("a", Condition.RECOVERY_REQUIRED)
    assert task.state is TaskState.CANCEL_REQUESTED
    recovery = await ground.recover("a")
    assert await recovery.end() == 0
    assert recovery.lines == ["settled plain confirmed"]
    assert (await ground.until("a")).state is TaskState.CANCELED
    assert (await action(ground, "plain")).state is ActionState.CONFIRMED


@pytest.mark.guarantee("{kept}", "A worker killed after its task has ended: it has ended once")
async def test_after_the_end_was_acknowledged(ground: Ground) -> None:
    await ground.create("a")
    steps = ("reserve", "plain", "checkpoint", "event")
    life = await ground.work(*steps, fuse=("CompleteTask:after", 1))
    await killed(ground, life, "CompleteTask:after")
    await finished(ground, ["plain"], attempts=1)
