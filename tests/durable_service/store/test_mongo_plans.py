"""Questions that are asked all the time look at no more tasks than they have to.

The server of these tests takes an index for simple shapes of questions alone. Questions with several bounds,
such as lists by actor behind a mark, are left to the indexes that stand ready for a full server.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from durable_service.core.availability import Queue
from durable_service.core.definition import Driver
from durable_service.store.base import ApprovalMark, ClaimableQuery, TaskQuery, UnknownMark
from durable_service.store.contract.scene import TENANT, Scene, key
from tests.durable_service.store.mongo_fixture import MISSING, MongoServer, listened_store

if not MISSING:
    from pymongo.monitoring import CommandListener, CommandStartedEvent

    from durable_service.store.mongo import MongoTaskStore
else:
    CommandListener = object  # type: ignore[assignment,misc]

DRIVERS = frozenset({Driver("fixture", 1), Driver("other", 2)})
QUESTIONS = frozenset({"find", "aggregate", "findAndModify"})
PARTS = (*QUESTIONS, "filter", "query", "sort", "limit", "projection", "pipeline")


class Heard(CommandListener):
    """Collects the questions that the driver asks."""

    def __init__(self) -> None:
        self.questions: list[dict[str, Any]] = []

    def started(self, event: "CommandStartedEvent") -> None:
        if event.command_name in QUESTIONS:
            command = dict(event.command)
            self.questions.append({name: command[name] for name in PARTS if name in command})

    def succeeded(self, event: Any) -> None:
        """Not of interest."""

    def failed(self, event: Any) -> None:
        """Not of interest."""


@pytest.fixture
async def listened(
    mongo_server: MongoServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple["MongoTaskStore", Heard]]:
    heard = Heard()
    async with listened_store(mongo_server, monkeypatch, heard) as store:
        yield store, heard


def stages(plan: Any) -> set[str]:
    if isinstance(plan, dict):
        own = {plan["stage"]} if "stage" in plan else set()
        return own.union(*(stages(value) for value in plan.values()))
    if isinstance(plan, list):
        return set().union(*map(stages, plan))
    return set()


async def test_every_question_has_an_index(listened: tuple["MongoTaskStore", Heard]) -> None:
    store, heard = listened
    scene = Scene(store)
    await scene.create("a", "b")
    holder = await scene.claim("a")
    await scene.prepare("a", holder, "send", approver="ann")
    heard.questions.clear()
    for queue in Queue:
        for drivers in (DRIVERS, None):
            await store.claimable(ClaimableQuery(TENANT, drivers, queue))
            await store.next_claimable_ms(ClaimableQuery(TENANT, drivers, queue))
    await store.due(10)
    await store.next_due_ms()
    await store.list_tasks(TaskQuery(TENANT), None, 10)
    await store.pending_approvals(TENANT, None, ApprovalMark(1, "x"), 10)
    await store.task_of_approval(TENANT, "a-send")
    await store.unknown_actions(TENANT, UnknownMark(1, "a", "b"), 10)
    await store.held(TENANT, "worker-1")
    await store.granted(TENANT, "worker-1", "claim")
    await store.changes(TENANT, 0, 10)
    await store.feed_page(0, 10)
    await store.referenced(["0" * 64])
    await store.get(key("missing"))
    asked = [question for question in heard.questions if "durable_tasks" in question.values()]
    assert len(asked) > 20
    for question in asked:
        # What the driver's own command has beside the question does not belong to an explanation.
        command = {**question, "cursor": {}} if "aggregate" in question else question
        plan = await store._collections.database.command("explain", command, verbosity="queryPlanner")
        found = stages(plan)
        assert "COLLSCAN" not in found, (question, plan)
        assert found & {"IXSCAN", "IDHACK", "EXPRESS_IXSCAN", "COUNT_SCAN", "EOF"}, (question, plan)


async def test_a_nonce_is_found_by_its_name(listened: tuple["MongoTaskStore", Heard]) -> None:
    store, heard = listened
    assert await store.use_nonce("caller", "nonce", 60_000)
    (question,) = (asked for asked in heard.questions if "durable_nonces" in asked.values())
    command = {"find": "durable_nonces", "filter": question["query"]}
    plan = await store._collections.database.command("explain", command, verbosity="queryPlanner")
    found = stages(plan)
    assert "COLLSCAN" not in found, plan
    assert found & {"IXSCAN", "IDHACK", "EXPRESS_IXSCAN"}, plan
