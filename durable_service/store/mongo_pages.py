"""Pages of what tasks have several of: the server finds the places of a page, and the tasks there are read.

So an answer is as large as its page, however much waits in the tenant.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from durable_service.core.model import TaskRecord
from durable_service.store.base import ApprovalMark, PendingApproval, UnknownAction, UnknownMark
from durable_service.store.indexed_parts import undecided_approvals, unknown_actions
from durable_service.store.mongo_tasks import MongoTasks

Item = TypeVar("Item")
Mark = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class _Parts:
    """Parts of tasks in an order.

    Attributes:
        member: the list of them in a document.
        tasks: finds the documents that may have some, by an index.
        each: the parts that are asked for.
        order: what they are sorted by; no two of them are alike in it.
        name: the member that says which part of its record it is.
    """

    member: str
    tasks: dict[str, Any]
    each: dict[str, Any]
    order: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class _Place:
    document: str
    mark: Mark
    name: str


async def pending_page(
    collections: MongoTasks,
    tenant_id: str,
    actor_id: str | None,
    after: ApprovalMark | None,
    limit: int,
    now_ms: int,
) -> list[PendingApproval]:
    mark = (-1, "") if after is None else (after.expires_at_ms, after.approval_id)
    expiry, actor = "sealwork.waiting.expiresAt", "sealwork.waiting.actorId"
    whose = {} if actor_id is None else {actor: actor_id}
    parts = _Parts(
        "sealwork.waiting",
        # Of any approval of the task: which of them it is, is seen once each stands for itself.
        {"identity.tenantId": tenant_id, expiry: {"$gt": max(now_ms, mark[0] - 1)}, **whose},
        {expiry: {"$gt": now_ms}, **whose},
        (expiry, "sealwork.waiting.id"),
        "sealwork.waiting.id",
    )

    def item(record: TaskRecord, name: str) -> PendingApproval | None:
        approval = record.approvals.get(name)
        if approval is None or name not in undecided_approvals(record):
            return None
        return PendingApproval(record.key, approval, record.actions[approval.action_id])

    return await _page(collections, parts, mark, limit, item)


async def unknown_page(
    collections: MongoTasks, tenant_id: str, after: UnknownMark | None, limit: int
) -> list[UnknownAction]:
    mark = (0, "", "") if after is None else (after.since_ms, after.task_id, after.action_id)
    since = "sealwork.unknown.since"
    parts = _Parts(
        "sealwork.unknown",
        {"identity.tenantId": tenant_id, since: {"$gt": mark[0] - 1}},
        {},
        (since, "id", "sealwork.unknown.id"),
        "sealwork.unknown.id",
    )

    def item(record: TaskRecord, name: str) -> UnknownAction | None:
        return UnknownAction(record, record.actions[name]) if name in unknown_actions(record) else None

    return await _page(collections, parts, mark, limit, item)


async def _page(
    collections: MongoTasks,
    parts: _Parts,
    mark: Mark,
    limit: int,
    item_of: Callable[[TaskRecord, str], Item | None],
) -> list[Item]:
    found: list[Item] = []
    while (wanted := limit - len(found)) > 0:
        places = await _places(collections, parts, mark, wanted)
        records = await _records(collections, places)
        items = (
            item_of(records[place.document], place.name) for place in places if place.document in records
        )
        # What has changed since its place was found is none of them any more. Others take its place, for a
        # page that is not full is the last one.
        found += [item for item in items if item is not None]
        if len(places) < wanted:
            break
        mark = places[-1].mark
    return found


async def _places(collections: MongoTasks, parts: _Parts, mark: Mark, limit: int) -> list[_Place]:
    stages: list[dict[str, Any]] = [
        {"$match": parts.tasks},
        {"$project": {"id": 1, parts.member: 1}},
        {"$unwind": f"${parts.member}"},
        {"$match": {**parts.each, "$or": _beyond(parts.order, mark)}},
        {"$sort": dict.fromkeys(parts.order, 1)},
        {"$limit": limit},
    ]
    found = await (await collections.tasks.aggregate(stages)).to_list()
    return [
        _Place(item["_id"], tuple(_member(item, name) for name in parts.order), _member(item, parts.name))
        for item in found
    ]


def _beyond(order: Sequence[str], mark: Mark) -> list[dict[str, Any]]:
    """What is sorted behind a mark: further at one of the members, and alike at all before it."""
    return [
        {**dict(zip(order[:number], mark, strict=False)), name: {"$gt": mark[number]}}
        for number, name in enumerate(order)
    ]


async def _records(collections: MongoTasks, places: Sequence[_Place]) -> dict[str, TaskRecord]:
    documents = sorted({place.document for place in places})
    if not documents:
        return {}
    found = collections.found({"_id": {"$in": documents}})
    return {stored.id: stored.record async for stored, _ in found}


def _member(document: Any, name: str) -> Any:
    for step in name.split("."):
        document = document[step]
    return document
