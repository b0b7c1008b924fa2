"""No question to the PostgreSQL store looks at more rows than it has to."""

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
import pytest

from durable_service.core.availability import Queue
from durable_service.core.definition import Driver
from durable_service.core.model import Holder
from durable_service.core.outcomes import cancel
from durable_service.postgres.connections import connect, rows_of
from durable_service.store.base import (
    ApprovalMark,
    ClaimableQuery,
    PageMark,
    StoreLimits,
    TaskQuery,
    UnknownMark,
)
from durable_service.store.contract.scene import TENANT, Scene, key
from durable_service.store.postgres import PostgresTaskStore
from tests.durable_service.store.postgres_fixture import PostgresServer, fresh_database, postgres_server

__all__ = ["postgres_server"]

pytestmark = pytest.mark.process

DRIVERS = frozenset({Driver("fixture", 1), Driver("other", 2)})
# Twenty tenants with five hundred tasks each, all of them waiting, held or over.
_MANY = """
INSERT INTO durable_tasks (tenant_id, task_id, actor_id, session_id, root_run_id, driver_id, driver_version,
    created_at_ms, updated_at_ms, state, queue, claimable_at_ms, due_at_ms, last_sequence, position, writer,
    lease_worker, lease_expires_at_ms)
SELECT 'tenant' || n % 20, 'many' || n, 'actor', 'session', 'root', 'fixture', 1,
    n, n, CASE n % 3 WHEN 0 THEN 'queued' WHEN 1 THEN 'running' ELSE 'completed' END,
    CASE WHEN n % 3 < 2 THEN 'work' END, CASE WHEN n % 3 < 2 THEN n END, CASE n % 3 WHEN 1 THEN 2 * n END,
    1, 1 + n % 500, 1, CASE n % 3 WHEN 1 THEN 'worker' || n % 50 END, CASE n % 3 WHEN 1 THEN n END
FROM generate_series(1, 10000) AS n;
INSERT INTO durable_definitions SELECT id, '' FROM durable_tasks WHERE task_id LIKE 'many%';
INSERT INTO durable_progress SELECT id, '' FROM durable_tasks WHERE task_id LIKE 'many%';
INSERT INTO durable_events SELECT id, n, NULL, n, 1, n, '' FROM durable_tasks, generate_series(1, 2) AS n
    WHERE task_id LIKE 'many%';
INSERT INTO durable_approvals SELECT id, 'approval' || id, tenant_id, 'ann' || id % 50, 1, id, true
    FROM durable_tasks WHERE task_id LIKE 'many%';
INSERT INTO durable_unknown_actions SELECT id, 'action', tenant_id, task_id, id FROM durable_tasks
    WHERE task_id LIKE 'many%';
INSERT INTO durable_claims SELECT tenant_id, 'worker', 'claim' || id, task_id FROM durable_tasks;
INSERT INTO durable_artifact_blobs SELECT 'blob' || id, id FROM durable_tasks;
INSERT INTO durable_tombstones SELECT tenant_id, 'gone' || id, '', 1 FROM durable_tasks;
INSERT INTO durable_nonces SELECT 'caller', 'nonce' || id, 9000000000000 FROM durable_tasks;
ANALYZE;
"""


async def test_every_statement_has_an_index(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fresh_database(postgres_server)
    limits = StoreLimits(events_per_task=4, event_bytes_per_task=400, event_age_ms=3_600_000)
    store = await PostgresTaskStore.open(url, limits=limits)
    scene = Scene(store)
    await scene.create("a", "b", "d")
    holder = await scene.claim("a", lease_ms=3_600_000)
    await scene.prepare("a", holder, "send", approver="ann")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_MANY)
    asked: dict[str, Mapping[str, object]] = {}

    async def noted(connection: Any, statement: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        asked.setdefault(statement, parameters)
        return await rows_of(connection, statement, parameters)

    monkeypatch.setattr("durable_service.postgres.connections.rows_of", noted)
    monkeypatch.setattr("durable_service.store.postgres_database.rows_of", noted)
    await ask_everything(store)
    await write_everything(scene, holder)
    monkeypatch.undo()
    await store.close()
    assert len(asked) > 30
    async with await connect(url) as reader:
        for statement, parameters in asked.items():
            await check_plan(reader, statement, parameters)


async def ask_everything(store: PostgresTaskStore) -> None:
    for queue in Queue:
        for drivers in (DRIVERS, None):
            await store.claimable(ClaimableQuery("nobody", drivers, queue))
            await store.next_claimable_ms(ClaimableQuery(TENANT, drivers, queue))
    await store._database.note_now()
    await store.now_ms()
    await store.next_due_ms()
    await store.events(key("a"), 1, 10)
    await store.list_tasks(TaskQuery("nobody"), None, 10)
    await store.list_tasks(TaskQuery("nobody", actor_id="actor"), PageMark(1, "a"), 10)
    for actor in ("ann", None):
        await store.pending_approvals("nobody", actor, None, 10)
        await store.pending_approvals("nobody", actor, ApprovalMark(1, "x"), 10)
    await store.task_of_approval(TENANT, "a-send")
    await store.unknown_actions("nobody", UnknownMark(1, "a", "b"), 10)
    await store.held(TENANT, "worker-1")
    await store.granted(TENANT, "worker-1", "claim")
    await store.changes("nobody", 0, 10)
    await store.feed_position()
    await store.feed_page(await store.feed_position(), 10)
    await store.purgeable("nobody", 1, 10)
    await store.referenced(["0" * 64])
    await store.backlog(TENANT)
    await store.get(key("missing"))


async def write_everything(scene: Scene, holder: Holder) -> None:
    store = scene.store
    await scene.create("c")
    await scene.dispatch("a", holder, "send")
    for number in range(6):
        await scene.append("a", holder, f"e{number}")
    await scene.release("a", holder)
    await scene.decide("a", "a-send", "ann")
    await scene.claim("b")
    await scene.run("d", cancel, "")
    assert await store.purge([key("d")], 2**53)
    assert await store.use_nonce("caller", "n", 100)
    # Old entries alone, and few of them.
    await store.trim_events(1)


async def check_plan(reader: Any, statement: str, parameters: Mapping[str, object]) -> None:
    # Its rows are no records, so that it is only planned for.
    if parameters.get("tenant_id") == "nobody":
        parameters = {**parameters, "tenant_id": "tenant3"}
    ((plan,),) = await rows_of(reader, f"EXPLAIN (FORMAT JSON) {statement}", parameters)
    for node in nodes(plan):
        if node["Node Type"] in {"Seq Scan", "Sort"}:
            table = str(node.get("Relation Name", ""))
            # One row, or rows of few.
            assert table == "durable_clock" or node["Plan Rows"] <= 200, (statement, node)
            assert not table.startswith("durable_") or table == "durable_clock", (statement, node)


def nodes(plan: Any) -> list[dict[str, Any]]:
    found = []
    for entry in plan:
        node = entry.get("Plan", entry)
        found += [node, *nodes(node.get("Plans", []))]
    return found
