"""The example with orders as a reader runs it: a worker is killed while the shop has its order."""

import json
import re
import sys
from pathlib import Path

import httpx
import pytest

from durable_service.client import Budget, Client, Driver, NewTask, PrincipalKey, TaskState
from durable_service.core.canonical_json import JsonValue
from tests.harness.processes import running

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "python" / "durable"
SEARCH = {"PYTHONPATH": f"{ROOT}:{ROOT / 'protos/gen/python'}"}
SERVICE = [sys.executable, "-m", "durable_service"]
READY = re.compile(r'"address":"([^"]+)".*durable service is serving')
ORDERS = re.compile(r"orders at (http://\S+)")
LEASE = "3s"


async def command(folder: Path, *words: str) -> str:
    async with running([*SERVICE, *words], env=SEARCH, cwd=folder) as process:
        assert await process.wait() == 0, process.describe()
        return "\n".join(process.stdout)


async def principals(folder: Path) -> None:
    file = ("principals", "--file", "principals.json", "add")
    roles = {
        "alice": ("--role", "submitter"),
        "boss": ("--role", "approver"),
        "worker": ("--role", "worker", "--driver", "order@1"),
    }
    for name, given in roles.items():
        public = await command(folder, "keys", "new", f"{name}.key")
        await command(folder, *file, name, "--tenant", "demo", "--key", public, *given)


async def test_an_order_is_placed_once_though_its_worker_is_killed(tmp_path: Path) -> None:
    await principals(tmp_path)
    serve = ["serve", "--dev", "--listen", "127.0.0.1:0", "--log-format", "json", "--lease", LEASE]
    serve += ["--principals", "principals.json", "--store", "sqlite:///tasks.db"]
    orders = [sys.executable, str(EXAMPLE / "orders.py"), "--port", "0", "--slow", "120"]
    async with (
        running([*SERVICE, *serve], env=SEARCH, cwd=tmp_path, ready=READY) as service,
        running(orders, env=SEARCH, cwd=tmp_path, ready=ORDERS) as shop,
    ):
        assert service.ready is not None
        assert shop.ready is not None
        address, url = service.ready[1], shop.ready[1]
        work = [sys.executable, str(EXAMPLE / "worker.py"), "--orders", url]
        place = SEARCH | {
            "DURABLE_ADDRESS": address,
            "DURABLE_KEY": "worker.key",
            "DURABLE_PRINCIPAL": "worker",
        }
        alice = Client(address, principal_id="alice", key=PrincipalKey.load(tmp_path / "alice.key"))
        boss = Client(address, principal_id="boss", key=PrincipalKey.load(tmp_path / "boss.key"))
        async with alice, boss:
            async with running(work, env=place, cwd=tmp_path, ready=re.compile("is working")) as worker:
                wanted: JsonValue = {"item": "desk", "cents": 9_900}
                # More attempts than are needed: a slow machine may lose a lease on the way.
                budget = Budget(max_attempts=10)
                task = NewTask("desk", driver=Driver("order", 1), input=wanted, budget=budget)
                await alice.tasks.create(task)
                await alice.tasks.wait("desk", or_approval=True)
                (approval,) = [each async for each in boss.approvals.pending()]
                assert (await boss.approvals.get("desk", approval.id)).action.args == wanted
                await boss.approvals.decide(approval, approved=True)
                await shop.wait_line("order 1 placed")
                worker.kill()
                await worker.wait()
            async with running(work, env=place, cwd=tmp_path, ready=re.compile("is working")):
                ended, met = await alice.tasks.wait("desk", at_most_ms=60_000)
                assert met
                assert (ended.state, ended.result_ref) == (TaskState.COMPLETED, "/orders/1")
        async with httpx.AsyncClient() as http:
            placed = json.loads((await http.get(url)).content)
        assert placed == [{"number": 1, "wanted": {"cents": 9_900, "item": "desk"}}]
        assert "asked for again" not in "\n".join(shop.stdout)
