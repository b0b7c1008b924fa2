"""Reading questions to a store on MongoDB; each is answered by an index."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from durable_service.core.definition import Driver, TaskKey
from durable_service.core.journal import check_cursor
from durable_service.core.model import TaskRecord
from durable_service.core.states import TERMINAL, TaskState
from durable_service.store.base import (
    Backlog,
    Candidate,
    ClaimableQuery,
    EventPage,
    PageMark,
    StateCount,
    TaskQuery,
)
from durable_service.store.mongo_document import claim_name
from durable_service.store.mongo_tasks import MongoTasks, Reading
from durable_service.store.updates import not_found

_KEY: Final = {"identity.tenantId": 1, "id": 1}


async def event_page(collections: MongoTasks, reading: Reading, after: int, limit: int) -> EventPage:
    stored = reading.stored
    if stored is None:
        raise not_found()
    latest = stored.record.last_sequence
    earliest = stored.journal[0].sequence if stored.journal else latest + 1
    check_cursor(after, earliest, latest)
    page = [entry for entry in stored.journal if entry.sequence > after][:limit]
    # After the document: a text that was not in it then was beside it before.
    return EventPage(await collections.events(stored.id, page), earliest, latest)


async def claimable(collections: MongoTasks, query: ClaimableQuery, now_ms: int) -> list[Candidate]:
    found: list[tuple[int, str, Candidate]] = []
    for drivers in _drivers(query):
        # An exclusive bound: the server of the tests loses equal instants in front of a further index field.
        condition = _waiting_at(query, drivers) | {"sealwork.claimableAt": {"$lt": now_ms + 1}}
        members = {"id": 1, "driver": 1, "sealwork.claimableAt": 1}
        order = [("sealwork.claimableAt", 1), ("id", 1)]
        async for item in collections.tasks.find(condition, members).sort(order).limit(query.limit):
            member = item.get("driver")
            driver = None if member is None else Driver(member["id"], int(member["version"]))
            candidate = Candidate(TaskKey(query.tenant_id, item["id"]), driver)
            found.append((item["sealwork"]["claimableAt"], item["id"], candidate))
    found.sort(key=lambda place: place[:2])
    return [candidate for *_, candidate in found[: query.limit]]


async def next_claimable_ms(collections: MongoTasks, query: ClaimableQuery) -> int | None:
    instants = [
        await _first(collections, _waiting_at(query, drivers), "claimableAt") for drivers in _drivers(query)
    ]
    return min((at_ms for at_ms in instants if at_ms is not None), default=None)


async def due(collections: MongoTasks, now_ms: int, limit: int) -> list[TaskKey]:
    condition = {"sealwork.dueAt": {"$gt": 0, "$lte": now_ms}}
    found = collections.tasks.find(condition, _KEY).sort("sealwork.dueAt", 1).limit(limit)
    return [_key(item) async for item in found]


async def next_due_ms(collections: MongoTasks) -> int | None:
    return await _first(collections, {"sealwork.dueAt": {"$gt": 0}}, "dueAt")


async def list_tasks(
    collections: MongoTasks, query: TaskQuery, after: PageMark | None, limit: int
) -> list[TaskRecord]:
    condition = _listed(query)
    if after is not None:
        earlier = {"createdAt": {"$lt": after.created_at_ms}}
        beside = {"createdAt": after.created_at_ms, "id": {"$lt": after.task_id}}
        condition["$or"] = [earlier, beside]
    return await collections.records(condition, [("createdAt", -1), ("id", -1)], limit)


async def task_of_approval(collections: MongoTasks, tenant_id: str, approval_id: str) -> TaskRecord | None:
    condition = {"identity.tenantId": tenant_id, "sealwork.approvals": approval_id}
    return next(iter(await collections.records(condition, limit=1)), None)


async def held(collections: MongoTasks, tenant_id: str, worker_id: str, now_ms: int) -> list[TaskRecord]:
    return await collections.records(_held(tenant_id, worker_id, now_ms))


async def granted(
    collections: MongoTasks, tenant_id: str, worker_id: str, claim_id: str, now_ms: int
) -> TaskKey | None:
    name = claim_name(worker_id, claim_id)
    condition = {"identity.tenantId": tenant_id, "sealwork.claims": name}
    known = await collections.tasks.find_one(condition, _KEY, sort=[("updatedAt", -1)])
    if known is not None:
        return _key(known)
    # Leases alone: this is asked with every claim, of workers that may hold many tasks.
    leases = collections.tasks.find(_held(tenant_id, worker_id, now_ms), {**_KEY, "sealwork.leaseClaim": 1})
    found = (item for item in await leases.to_list() if _lease_claim(item) == claim_id)
    return next((_key(item) for item in found), None)


async def changed(
    collections: MongoTasks, tenant_id: str | None, after: int, latest: int, limit: int
) -> list[tuple[int, TaskRecord]]:
    """Tasks of one tenant or of all with a position after one and up to another, in its order."""
    condition: dict[str, Any] = {} if tenant_id is None else {"identity.tenantId": tenant_id}
    condition["sealwork.position"] = {"$gt": after, "$lte": latest}
    found = collections.found(condition, [("sealwork.position", 1)], limit)
    return [(document["sealwork"]["position"], stored.record) async for stored, document in found]


async def with_events_until(collections: MongoTasks, until_ms: int, limit: int) -> list[TaskKey]:
    """Tasks whose oldest journal entry is of an instant or older, the oldest first."""
    condition = {"sealwork.oldestEventAt": {"$gt": 0, "$lte": until_ms}}
    found = collections.tasks.find(condition, _KEY).sort("sealwork.oldestEventAt", 1).limit(limit)
    return [_key(item) async for item in found]


async def purgeable_keys(
    collections: MongoTasks, tenant_id: str, before_ms: int, limit: int, states: Iterable[TaskState]
) -> list[TaskKey]:
    ended = sorted(state.value for state in states if state in TERMINAL)
    condition = {"identity.tenantId": tenant_id, "state": {"$in": ended}, "updatedAt": {"$lt": before_ms}}
    found = collections.tasks.find(condition, _KEY).sort("updatedAt", 1).limit(limit)
    return [_key(item) async for item in found]


async def referenced(collections: MongoTasks, blob_keys: Sequence[str]) -> frozenset[str]:
    asked = frozenset(blob_keys)
    found = collections.tasks.find(
        {"sealwork.blobKeys": {"$in": sorted(asked)}}, {"_id": 0, "sealwork.blobKeys": 1}
    )
    return frozenset({key async for item in found for key in item["sealwork"]["blobKeys"]} & asked)


async def counts(collections: MongoTasks) -> list[StateCount]:
    group = {"_id": {"tenant": "$identity.tenantId", "state": "$state"}, "tasks": {"$sum": 1}}
    stages: list[dict[str, Any]] = [{"$match": {"identity.tenantId": {"$gt": ""}}}, {"$group": group}]
    found = await (await collections.tasks.aggregate(stages)).to_list()
    numbers = [
        StateCount(item["_id"]["tenant"], TaskState(item["_id"]["state"]), item["tasks"]) for item in found
    ]
    return sorted(numbers, key=lambda number: (number.tenant_id, number.state))


async def backlog(collections: MongoTasks, tenant_id: str, now_ms: int) -> Backlog:
    """Each number with the oldest instant behind it."""
    tenant = {"identity.tenantId": tenant_id}
    work = {**tenant, "sealwork.queue": "work", "sealwork.claimableAt": {"$lt": now_ms + 1}}
    claimable_tasks, oldest_claimable = await _numbers(collections, work, "sealwork.claimableAt")
    live = {**tenant, "lease.expiresAt": {"$gt": now_ms}}
    leases, _ = await _numbers(collections, live, "lease.expiresAt")
    unknown, oldest_unknown = await _numbers(
        collections,
        {**tenant, "sealwork.unknown.since": {"$gt": -1}},
        "sealwork.unknown.since",
        "sealwork.unknown",
    )
    waiting = {**tenant, "sealwork.waiting.expiresAt": {"$gt": now_ms}}
    undecided = {"sealwork.waiting.expiresAt": {"$gt": now_ms}}
    pending, oldest_pending = await _numbers(
        collections, waiting, "sealwork.waiting.createdAt", "sealwork.waiting", undecided
    )
    return Backlog(
        claimable_tasks, oldest_claimable, leases, unknown, oldest_unknown, pending, oldest_pending
    )


async def _numbers(
    collections: MongoTasks,
    condition: dict[str, Any],
    instant: str,
    unwound: str | None = None,
    each: dict[str, Any] | None = None,
) -> tuple[int, int | None]:
    """How many there are, and the first of their instants."""
    stages: list[dict[str, Any]] = [{"$match": condition}]
    if unwound is not None:
        stages += [{"$unwind": f"${unwound}"}, {"$match": each or {}}]
    stages.append({"$group": {"_id": None, "number": {"$sum": 1}, "first": {"$min": f"${instant}"}}})
    found = await (await collections.tasks.aggregate(stages)).to_list()
    return (found[0]["number"], found[0]["first"]) if found else (0, None)


def _held(tenant_id: str, worker_id: str, now_ms: int) -> dict[str, Any]:
    return {
        "identity.tenantId": tenant_id,
        "lease.workerId": worker_id,
        "lease.expiresAt": {"$gt": now_ms},
    }


def _drivers(query: ClaimableQuery) -> Iterable[Driver | None]:
    return (None,) if query.drivers is None else query.drivers


def _waiting_at(query: ClaimableQuery, driver: Driver | None) -> dict[str, Any]:
    condition: dict[str, Any] = {"identity.tenantId": query.tenant_id, "sealwork.queue": query.queue.value}
    # A bound for what it is sorted by: simple planners take an index for that alone.
    condition["sealwork.claimableAt"] = {"$gte": 0}
    if driver is not None:
        condition |= {"driver.id": driver.id, "driver.version": driver.version}
    return condition


async def _first(collections: MongoTasks, condition: dict[str, Any], instant: str) -> int | None:
    """The earliest of an instant among the tasks that a filter finds."""
    member = f"sealwork.{instant}"
    found = await collections.tasks.find_one(condition, {"_id": 0, member: 1}, sort=[(member, 1)])
    return None if found is None else int(found["sealwork"][instant])


def _listed(query: TaskQuery) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "identity.tenantId": query.tenant_id,
        "identity.actorId": query.actor_id,
        "identity.sessionId": query.session_id,
        "identity.rootRunId": query.root_run_id,
        "driver.id": query.driver_id,
        "driver.version": query.driver_version or None if query.driver_id is not None else None,
        "state": {"$in": sorted(query.states)} if query.states else None,
        "sealwork.queue": None if query.queue is None else query.queue.value,
        "createdAt": _between(query.created_from_ms, query.created_before_ms),
        "updatedAt": _between(query.updated_from_ms, query.updated_before_ms),
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _between(start_ms: int | None, end_ms: int | None) -> dict[str, int] | None:
    bounds = {"$gte": start_ms, "$lt": end_ms}
    return {name: bound for name, bound in bounds.items() if bound is not None} or None


def _lease_claim(item: dict[str, Any]) -> str | None:
    own = item.get("sealwork") or {}
    return own.get("leaseClaim")


def _key(item: dict[str, Any]) -> TaskKey:
    return TaskKey(item["identity"]["tenantId"], item["id"])
