"""Several stores on one MongoDB database, each with a connection of its own as another process has."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.claims import ClaimAnswer, Claimed, ClaimRequest, claim
from durable_service.core.definition import TaskKey
from durable_service.core.errors import DomainError, Reason
from durable_service.core.extensions import update_extension
from durable_service.core.model import TaskRecord
from durable_service.core.step import Decision, Step
from durable_service.store.base import EventDraft, StoreLimits, TaskChange
from durable_service.store.contract.scene import TENANT, Scene, creation, key
from tests.durable_service.store.mongo_fixture import MISSING, MongoServer, fresh_database
from tests.harness.waiting import eventually

if not MISSING:
    from durable_service.store.mongo import MongoTaskStore

TASKS = 12


@pytest.fixture
async def stores(mongo_server: MongoServer) -> AsyncIterator[tuple["MongoTaskStore", "MongoTaskStore"]]:
    url = fresh_database(mongo_server)
    first, second = await MongoTaskStore.open(url), await MongoTaskStore.open(url)
    yield first, second
    await first.close()
    await second.close()


async def claimed_by(store: "MongoTaskStore", name: str, number: int) -> bool:
    request = ClaimRequest(name, f"{name}-{number}", 60_000)

    def mutate(record: TaskRecord, now_ms: int) -> Decision[ClaimAnswer]:
        return claim(record, request, now_ms)

    return isinstance((await store.update(key(f"t{number}"), mutate)).answer, Claimed)


@pytest.mark.guarantee("mongodb", "However many services want a task, one of them has it")
async def test_two_race_for_every_task(stores: tuple["MongoTaskStore", "MongoTaskStore"]) -> None:
    first, second = stores
    for number in range(TASKS):
        await first.create(creation(f"t{number}"))
    won = await asyncio.gather(
        *(claimed_by(first, "one", number) for number in range(TASKS)),
        *(claimed_by(second, "two", number) for number in range(TASKS)),
    )
    assert [won[number] + won[TASKS + number] for number in range(TASKS)] == [1] * TASKS
    for number in range(TASKS):
        record = await first.get(key(f"t{number}"))
        assert record is not None
        assert (record.fence, len(record.attempts)) == (1, 1)


@pytest.mark.guarantee("mongodb", "No change that several services make to one task is lost")
async def test_nothing_is_lost_between_two_writers(
    stores: tuple["MongoTaskStore", "MongoTaskStore"],
) -> None:
    await stores[0].create(creation("a"))

    def more(record: TaskRecord, now_ms: int) -> Decision[object]:
        known = record.extensions.get("counter")
        value = CanonicalJson(str(1 if known is None else int(known.value) + 1))
        decision = update_extension(record, "counter", value, now_ms)
        return Decision(decision.record, decision.answer, decision.events)

    async def count(store: "MongoTaskStore") -> None:
        for _ in range(10):
            await store.update(key("a"), more)

    await asyncio.gather(*(count(store) for store in stores for _ in range(2)))
    record = await stores[1].get(key("a"))
    assert record is not None
    assert (record.extensions["counter"].value, record.revision) == ("40", 40)
    page = await stores[0].changes(TENANT, 0, 10)
    assert [task.revision for _, task in page.records] == [40]


async def test_who_is_always_overtaken_is_told(
    stores: tuple["MongoTaskStore", "MongoTaskStore"], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = stores
    await first.create(creation("a"))
    tries = 0

    read = first._collections.read

    async def slow(wanted: TaskKey) -> object:
        reading = await read(wanted)
        await second.update(key("a"), lambda record, now: Step(record, now).decision(None))
        nonlocal tries
        tries += 1
        return reading

    monkeypatch.setattr(first._collections, "read", slow)
    with pytest.raises(DomainError) as error:
        await first.update(key("a"), lambda record, now: Step(record, now).decision(None))
    assert (error.value.reason, tries) == (Reason.CONTENTION, 32)


async def test_what_another_commits_is_told(stores: tuple["MongoTaskStore", "MongoTaskStore"]) -> None:
    first, second = stores
    heard: list[TaskChange] = []
    second.listen(heard.append)
    scene = Scene(first)
    await scene.create("a")
    await eventually(lambda: heard)
    assert (heard[0].remote, heard[0].before) == (True, None)
    await scene.claim("a")
    await eventually(lambda: len(heard) > 1)
    assert heard[1].after is not None
    assert heard[1].after.revision == 1
    assert [event.type for event in heard[1].events] == ["task.state", "lease.granted"]


@pytest.mark.guarantee("mongodb", "Whoever follows the changes of several services misses none")
async def test_positions_skip_nothing(stores: tuple["MongoTaskStore", "MongoTaskStore"]) -> None:
    first, second = stores
    seen: dict[str, int] = {}
    done = asyncio.Event()

    async def follow() -> None:
        cursor = 0
        while True:
            last = done.is_set()
            page = await second.changes(TENANT, cursor, 5)
            positions = [position for position, _ in page.records]
            assert positions == sorted(positions)
            for _, record in page.records:
                seen[record.key.task_id] = record.revision
            cursor = positions[-1] if len(positions) == 5 else page.latest
            if last and len(positions) < 5:
                return

    async def write(store: "MongoTaskStore", name: str) -> None:
        for number in range(6):
            task = f"{name}{number}"
            await store.create(creation(task))
            await store.update(key(task), lambda record, now: Step(record, now).decision(None))

    reader = asyncio.create_task(follow())
    await asyncio.gather(write(first, "a"), write(first, "b"), write(second, "c"))
    done.set()
    await reader
    assert seen == {f"{name}{number}": 1 for name in "abc" for number in range(6)}


async def test_what_a_dead_process_left_pending_gets_a_position(
    stores: tuple["MongoTaskStore", "MongoTaskStore"], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = stores
    # As if the first had died right after its write: nobody is told that there is a position to give.
    monkeypatch.setattr(first._positions, "note", lambda task, write: None)
    await first.create(creation("a"))
    page = await second.changes(TENANT, 0, 10)
    assert [(position, record.key.task_id) for position, record in page.records] == [(1, "a")]


async def test_an_allocator_that_is_late_changes_nothing(
    stores: tuple["MongoTaskStore", "MongoTaskStore"], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = stores
    pending: list[tuple[str, str]] = []
    monkeypatch.setattr(first._positions, "note", lambda task, write: pending.append((task, write)))
    await first.create(creation("a"))
    assert [position for position, _ in (await second.changes(TENANT, 0, 10)).records] == [1]
    await first._positions._give(pending)
    page = await second.changes(TENANT, 0, 10)
    assert ([position for position, _ in page.records], page.latest) == ([1], 2)


async def test_a_long_journal_is_read_in_one_piece(mongo_server: MongoServer) -> None:
    store = await MongoTaskStore.open(fresh_database(mongo_server), StoreLimits(events_per_task=40))
    try:
        scene = Scene(store)
        await scene.create("a")
        holder = await scene.claim("a", lease_ms=600_000)
        for number in range(45):
            await store.append(key("a"), holder, EventDraft(f"e{number}", "note", CanonicalJson(str(number))))
        page = await store.events(key("a"), 8, 100)
        assert (page.earliest, page.latest) == (9, 48)
        assert [event.sequence for event in page.events] == list(range(9, 49))
        assert [event.data for event in page.events] == [str(number) for number in range(5, 45)]
        # An entry whose text lies beside the document is still the answer to its repeat.
        repeat = EventDraft("e6", "note", CanonicalJson("6"))
        assert (await store.append(key("a"), holder, repeat)).answer.sequence == 10
        beside = [found["_id"][-2:] async for found in store._collections.texts.find({}).sort("_id", 1)]
        assert "10" in beside
    finally:
        await store.close()
