"""A worker is frozen until its task belongs to another, and wakes: it can write nothing any more."""

import signal
from pathlib import Path

import pytest

from durable_service.client import Condition, TaskState

from .ground import SHORT_LEASE_MS, Ground, service
from .kept import KINDS
from .nursery import Nursery

pytestmark = pytest.mark.process


@pytest.mark.guarantee(
    "{kept}", "A worker that was frozen past its lease can write nothing, whatever it was about to do"
)
@pytest.mark.parametrize(
    ("kept", "step"),
    [
        *[("sqlite", step) for step in ("reserve", "checkpoint", "event", "gated", "nothing")],
        *[(kind, "plain") for kind in KINDS],
    ],
    indirect=["kept"],
)
async def test_one_that_does_not_heed_its_clock_is_refused_by_the_fence(ground: Ground, step: str) -> None:
    """The first worker believes in its lease for ever, so that nothing but the service stops it."""
    gate = ground.folder / "gate"
    await ground.create("a")
    first = await ground.work("gate", step, gate=str(gate), stubborn=True)
    await first.says("at the gate")
    first.signal(signal.SIGSTOP)
    await ground.pass_lease()
    await ground.until("a", Condition.CLAIMABLE)
    second = await ground.work("gate", "plain", gate=str(ground.folder / "gate-2"))
    await second.says("claimed 2")
    before = await ground.journal("a")
    gate.touch()
    first.signal(signal.SIGCONT)
    assert await first.end() == 0, first.lines
    assert any("lost" in line for line in first.lines if line.startswith("ended")), first.lines
    assert await ground.journal("a") == before
    task = await ground.task("a")
    assert (ground.sent("a"), task.result_ref, task.artifacts) == ([], None, ())
    assert task.usage is not None
    assert task.usage.reserved_tokens == 0
    assert await ground.actions("a") == {}
    # The one whose task it is was not disturbed.
    (ground.folder / "gate-2").touch()
    assert await second.end() == 0
    assert (await ground.until("a")).state is TaskState.COMPLETED
    assert ground.sent("a") == ["plain"]


@pytest.mark.guarantee("sqlite", "A worker that wakes after its lease stops by its own clock")
async def test_one_that_wakes_stops_by_its_own_clock(cradle: Nursery, tmp_path: Path) -> None:
    async with service(cradle, tmp_path, lease_ms=SHORT_LEASE_MS) as ground:
        gate = tmp_path / "gate"
        await ground.create("a")
        first = await ground.work("gate", "plain", gate=str(gate))
        await first.says("at the gate")
        first.signal(signal.SIGSTOP)
        await ground.until("a", Condition.CLAIMABLE)
        await ground.serve_unhurried()
        second = await ground.work("reserve", "plain", "event")
        assert await second.end() == 0
        assert (await ground.until("a")).state is TaskState.COMPLETED
        gate.touch()
        first.signal(signal.SIGCONT)
        assert await first.end() == 0, first.lines
        assert any(line.startswith("ended lease-lost") for line in first.lines), first.lines
        assert ground.sent("a") == ["plain"]


@pytest.mark.guarantee(
    "{kept}",
    "A worker frozen in the middle of an effect: nobody sends it again, and its late word counts for nothing",
)
@pytest.mark.parametrize("kept", KINDS, indirect=True)
async def test_one_that_is_frozen_in_the_middle_of_its_effect(ground: Ground) -> None:
    """What it had sent cannot be called back: nobody sends it again, and its late word counts for nothing."""
    gate = ground.folder / "gate"
    await ground.create("a")
    first = await ground.work("plain", gate=str(gate), gated_effect=True, stubborn=True)
    await first.says("at the gate")
    first.signal(signal.SIGSTOP)
    await ground.pass_lease()
    await ground.until("a", Condition.RECOVERY_REQUIRED)
    recovery = await ground.recover("a")
    assert await recovery.end() == 0
    assert recovery.lines == ["settled plain confirmed"]
    second = await ground.work("plain")
    assert await second.end() == 0
    task = await ground.until("a")
    journal = await ground.journal("a")
    gate.touch()
    first.signal(signal.SIGCONT)
    assert await first.end() == 0, first.lines
    assert (task.state, ground.sent("a")) == (TaskState.COMPLETED, ["plain"])
    assert await ground.journal("a") == journal
