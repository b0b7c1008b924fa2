"""No question to the SQLite store looks at more rows than it has to."""

from pathlib import Path

from durable_service.core.availability import Queue
from durable_service.core.definition import Driver
from durable_service.core.states import TaskState
from durable_service.store.base import (
    ApprovalMark,
    ClaimableQuery,
    PageMark,
    TaskQuery,
    UnknownMark,
)
from durable_service.store.contract.scene import TENANT, Scene, key
from durable_service.store.sqlite import SqliteTaskStore

DRIVERS = frozenset({Driver("fixture", 1), Driver("other", 2)})


async def test_every_question_has_an_index(tmp_path: Path) -> None:
    store = SqliteTaskStore(tmp_path / "tasks.db")
    scene = Scene(store)
    await scene.create("a", "b")
    holder = await scene.claim("a")
    await scene.prepare("a", holder, "send", approver="ann")
    asked: list[str] = []
    store._reading.set_trace_callback(asked.append)
    for queue in Queue:
        for drivers in (DRIVERS, None):
            await store.claimable(ClaimableQuery(TENANT, drivers, queue))
            await store.next_claimable_ms(ClaimableQuery(TENANT, drivers, queue))
    await store.due(10)
    await store.next_due_ms()
    await store.events(key("a"), 1, 10)
    await store.list_tasks(TaskQuery(TENANT), None, 10)
    await store.list_tasks(TaskQuery(TENANT, actor_id="actor"), PageMark(1, "a"), 10)
    for actor in ("ann", None):
        await store.pending_approvals(TENANT, actor, None, 10)
        await store.pending_approvals(TENANT, actor, ApprovalMark(1, "x"), 10)
    await store.task_of_approval(TENANT, "a-send")
    await store.unknown_actions(TENANT, UnknownMark(1, "a", "b"), 10)
    await store.held(TENANT, "worker-1")
    await store.granted(TENANT, "worker-1", "claim")
    await store.changes(TENANT, 0, 10)
    await store.purgeable(TENANT, 1, 10)
    await store.purgeable(TENANT, 1, 10, frozenset({TaskState.FAILED}))
    await store.referenced(["0" * 64])
    await store.backlog(TENANT)
    await store.get(key("missing"))
    store._reading.set_trace_callback(None)
    questions = {statement for statement in asked if statement.startswith("SELECT")}
    assert len(questions) > 20
    for question in questions:
        plan = [row[3] for row in store._reading.execute(f"EXPLAIN QUERY PLAN {question}")]
        for step in plan:
            assert "SCAN" not in step, (question, plan)
            assert "TEMP B-TREE" not in step, (question, plan)
    await store.close()
