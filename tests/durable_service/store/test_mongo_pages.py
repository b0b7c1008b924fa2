"""Pages of what waits in a tenant: as large as they were asked for, whatever changes while they are read."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from durable_service.core.actions import mark_unknown
from durable_service.core.model import Holder
from durable_service.core.reconciliation import Evidence, Finding, reconcile
from durable_service.store.base import ApprovalMark, UnknownMark
from durable_service.store.contract.scene import TENANT, Scene
from tests.durable_service.store.mongo_fixture import MISSING, MongoServer, listened_store

if not MISSING:
    from pymongo.monitoring import CommandListener, CommandStartedEvent, CommandSucceededEvent

    from durable_service.store.mongo import MongoTaskStore
else:
    CommandListener = object  # type: ignore[assignment,misc]

TASKS = [f"task-{number}" for number in range(12)]
Tell = Callable[[], Awaitable[Any]]


class Traffic(CommandListener):
    """Counts the documents that the two questions of a page have brought."""

    def __init__(self) -> None:
        self.documents = 0
        self._asked: set[int] = set()

    def started(self, event: "CommandStartedEvent") -> None:
        # The store asks for news as well.
        if "$unwind" in str(event.command.get("pipeline")) or "$in" in event.command.get("filter", {}).get(
            "_id", {}
        ):
            self._asked.add(event.request_id)

    def succeeded(self, event: "CommandSucceededEvent") -> None:
        if event.request_id in self._asked:
            cursor = event.reply["cursor"]
            assert cursor["id"] == 0
            self.documents += len(cursor["firstBatch"])

    def failed(self, event: Any) -> None:
        """Not of interest."""


@pytest.fixture
async def told(
    mongo_server: MongoServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple["MongoTaskStore", Traffic]]:
    traffic = Traffic()
    async with listened_store(mongo_server, monkeypatch, traffic) as store:
        yield store, traffic


def before_tasks_are_read(store: "MongoTaskStore", monkeypatch: pytest.MonkeyPatch, *happens: Tell) -> None:
    """Has one thing happen each time that the places of a page were found."""
    left, found = list(happens), store._collections.found

    async def found_then(*question: Any) -> AsyncIterator[Any]:
        if left:
            await left.pop(0)()
        async for item in found(*question):
            yield item

    monkeypatch.setattr(store._collections, "found", found_then)


async def asked_for(scene: Scene, *task_ids: str) -> dict[str, Holder]:
    """Each task has an approval that waits for ann, the first of them longest."""
    await scene.create(*task_ids)
    holders = {}
    for task_id in task_ids:
        holders[task_id] = await scene.claim(task_id)
        await scene.prepare(task_id, holders[task_id], "send", approver="ann")
    return holders


async def unknown(scene: Scene, *task_ids: str) -> dict[str, Holder]:
    """Each task has an effect of which nobody knows."""
    await scene.create(*task_ids)
    holders = {}
    for task_id in task_ids:
        holders[task_id] = await scene.claim(task_id)
        await scene.prepare(task_id, holders[task_id], "send")
        await scene.dispatch(task_id, holders[task_id], "send")
        await scene.run(task_id, mark_unknown, holders[task_id], "send")
    return holders


async def test_a_page_of_approvals_brings_no_more_than_its_own(
    told: tuple["MongoTaskStore", Traffic],
) -> None:
    store, traffic = told
    await asked_for(Scene(store), *TASKS)
    traffic.documents, seen, after = 0, list[str](), None
    for _ in range(5):
        page = await store.pending_approvals(TENANT, "ann", after, 3)
        seen += [item.key.task_id for item in page]
        if page:
            after = ApprovalMark(page[-1].approval.expires_at_ms, page[-1].approval.id)
    assert sorted(seen) == sorted(TASKS)
    # Of each place and of each task one.
    assert traffic.documents == 24


async def test_a_page_of_unknown_effects_brings_no_more_than_its_own(
    told: tuple["MongoTaskStore", Traffic],
) -> None:
    store, traffic = told
    await unknown(Scene(store), *TASKS)
    traffic.documents, seen, after = 0, list[str](), None
    for _ in range(5):
        page = await store.unknown_actions(TENANT, after, 3)
        seen += [item.record.key.task_id for item in page]
        if page:
            last = page[-1]
            after = UnknownMark(last.action.updated_at_ms, last.record.key.task_id, last.action.id)
    assert sorted(seen) == sorted(TASKS)
    assert traffic.documents == 24


async def test_an_approval_that_is_decided_meanwhile_makes_room_for_the_next(
    told: tuple["MongoTaskStore", Traffic], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = told
    scene = Scene(store)
    await asked_for(scene, "a", "b", "c", "d")
    first, second = [item.key.task_id for item in await store.pending_approvals(TENANT, "ann", None, 2)]
    others = sorted({"a", "b", "c", "d"} - {first, second})
    before_tasks_are_read(store, monkeypatch, lambda: scene.decide(first, f"{first}-send", "ann"))
    page = await store.pending_approvals(TENANT, "ann", None, 2)
    known, added = (item.key.task_id for item in page)
    assert known == second
    assert added in others


async def test_an_effect_that_is_settled_meanwhile_makes_room_for_the_next(
    told: tuple["MongoTaskStore", Traffic], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = told
    scene = Scene(store)
    holders = await unknown(scene, "a", "b")
    (first,) = await store.unknown_actions(TENANT, None, 1)
    task_id = first.record.key.task_id
    proof = Evidence(Finding.CONFIRMED, "proof", "result")

    async def settle() -> None:
        await scene.run(task_id, reconcile, holders[task_id], "send", first.action.prepared_hash, proof)

    before_tasks_are_read(store, monkeypatch, settle)
    (other,) = await store.unknown_actions(TENANT, None, 1)
    assert {task_id, other.record.key.task_id} == {"a", "b"}
    assert await store.unknown_actions(TENANT, None, 0) == []
