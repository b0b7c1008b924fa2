"""A network that fails between a worker and its service: time alone ends a lease, never a connection."""

from pathlib import Path

import pytest

from durable_service.client import Condition, TaskState
from tests.harness.fault_proxy import fault_proxy
from tests.harness.waiting import eventually

from .ground import SHORT_LEASE_MS, service
from .kept import KINDS, Kept
from .nursery import Nursery

pytestmark = pytest.mark.process


@pytest.mark.guarantee("{kept}", "A worker that is cut off for less than its lease goes on with its task")
@pytest.mark.parametrize("kept", KINDS, indirect=True)
async def test_renewals_that_fail_for_a_while(cradle: Nursery, tmp_path: Path, kept: Kept) -> None:
    gate = tmp_path / "gate"
    async with service(cradle, tmp_path, kept) as ground:
        async with fault_proxy("127.0.0.1", ground.port) as proxy:
            await ground.create("a")
            worker = await ground.work("gate", "reserve", "plain", gate=str(gate), address=proxy.address)
            await worker.says("at the gate")
            # Every connection is gone, and new ones are refused.
            proxy.cut(refuse=True)
            await proxy.reset_all()
            tried = proxy.accepted + 3
            gate.touch()
            await eventually(lambda: proxy.accepted >= tried, 15, "the worker to try again and again")
            assert ground.sent("a") == []
            await proxy.restore()
            assert await worker.end() == 0, worker.lines
        assert "ended completed None" in worker.lines
        task = await ground.task("a")
        assert (task.state, ground.sent("a")) == (TaskState.COMPLETED, ["plain"])
        assert task.usage is not None
        assert (task.usage.attempts, task.usage.reserved_tokens) == (1, 3)


@pytest.mark.guarantee("sqlite", "A worker that is cut off for longer stops in time, and another one goes on")
async def test_a_worker_that_nobody_hears_stops_in_time(cradle: Nursery, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with service(cradle, tmp_path, lease_ms=SHORT_LEASE_MS) as ground:
        async with fault_proxy("127.0.0.1", ground.port) as proxy:
            await ground.create("a")
            first = await ground.work("gate", "plain", gate=str(gate), address=proxy.address)
            await first.says("at the gate")
            # A black hole: nothing is refused, and nothing is answered.
            proxy.cut()
            assert await first.end() == 0, first.lines
            assert any(line.startswith("ended lease-lost") for line in first.lines), first.lines
        await ground.until("a", Condition.CLAIMABLE)
        await ground.serve_unhurried()
        second = await ground.work("plain")
        assert await second.end() == 0
        assert (await ground.until("a")).state is TaskState.COMPLETED
        assert ground.sent("a") == ["plain"]
