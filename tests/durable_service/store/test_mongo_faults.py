"""A MongoDB server that is killed, hangs or steps down: what was confirmed stays, and work goes on."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from durable_service.core.errors import Reason
from durable_service.core.step import Step
from durable_service.store.base import StoreFault, StoreUnavailable, TaskChange
from durable_service.store.contract.scene import Scene, creation, key
from tests.durable_service.store.mongo_fixture import (
    MISSING,
    MongoServer,
    forget_sockets,
    fresh_database,
    require_mongo,
)
from tests.harness.waiting import eventually

if not MISSING:
    from pymongo import MongoClient

    from durable_service.store.mongo import MongoTaskStore


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[MongoServer]:
    require_mongo()
    server = MongoServer(tmp_path, ("--enable-test-commands",))
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def store(server: MongoServer) -> AsyncIterator["MongoTaskStore"]:
    url = fresh_database(server) + "&serverSelectionTimeoutMS=500&socketTimeoutMS=1000"
    opened = await MongoTaskStore.open(url)
    yield opened
    await opened.close()
    forget_sockets()


def command(server: MongoServer, *words: Any, **details: Any) -> None:
    with MongoClient[dict[str, Any]](server.url) as client:
        client.admin.command(*words, **details)


async def fault_of(call: Any) -> StoreFault:
    with pytest.raises(StoreUnavailable) as failure:
        await call
    assert failure.value.reason is Reason.STORE_UNAVAILABLE
    assert "127.0.0.1" not in failure.value.message
    return failure.value.fault


async def again(store: "MongoTaskStore") -> None:
    async def answers() -> bool:
        try:
            await store.now_ms()
        except StoreUnavailable:
            return False
        return True

    await eventually(answers, 30)


@pytest.mark.guarantee("mongodb", "What was answered outlives a kill of what keeps it")
async def test_what_was_confirmed_outlives_a_kill(server: MongoServer, store: "MongoTaskStore") -> None:
    heard: list[TaskChange] = []
    store.listen(heard.append)
    confirmed: list[str] = []
    killed = asyncio.Event()

    async def lane(lane_number: int) -> None:
        for number in range(100):
            name = f"t{lane_number}-{number}"
            try:
                await store.create(creation(name))
            except StoreUnavailable:
                return
            confirmed.append(name)
            if len(confirmed) == 8:
                killed.set()

    lanes = [asyncio.create_task(lane(number)) for number in range(4)]
    await killed.wait()
    await asyncio.to_thread(server.kill)
    await asyncio.gather(*lanes)
    assert await fault_of(store.get(key("t0-0"))) is StoreFault.UNREACHABLE
    await asyncio.to_thread(server.start)
    await again(store)
    assert len(confirmed) >= 8
    for name in confirmed:
        assert await store.get(key(name)) is not None
    # The same store goes on: writing, its positions and its feed.
    scene = Scene(store)
    await scene.claim(confirmed[0])
    page = await store.changes("tenant", 0, 1_000)
    assert {record.key.task_id for _, record in page.records} >= set(confirmed)


async def test_a_server_that_hangs(server: MongoServer, store: "MongoTaskStore") -> None:
    await store.create(creation("a"))
    server.hang()
    try:
        assert await fault_of(store.create(creation("b"))) is StoreFault.UNREACHABLE
    finally:
        server.resume()
    await again(store)
    # It may have been done or not; asking once more is safe.
    await store.create(creation("b"))
    assert await store.get(key("b")) is not None


async def test_a_primary_that_steps_down(server: MongoServer, store: "MongoTaskStore") -> None:
    await store.create(creation("a"))
    await asyncio.to_thread(command, server, "replSetStepDown", 2, force=True)
    assert await fault_of(store.create(creation("b"))) is StoreFault.UNREACHABLE
    await again(store)

    async def created() -> bool:
        try:
            await store.create(creation("b"))
        except StoreUnavailable:
            return False
        return True

    await eventually(created, 30)
    assert await store.get(key("a")) is not None


async def test_an_answer_that_is_lost_is_found_again(server: MongoServer, store: "MongoTaskStore") -> None:
    await store.create(creation("a"))
    # It was done, and not every member that should have has confirmed it.
    data = {"failCommands": ["update"], "writeConcernError": {"code": 64, "errmsg": "waited long enough"}}
    lost = {"mode": {"times": 1}, "data": data}
    await asyncio.to_thread(command, server, "configureFailPoint", "failCommand", **lost)
    decision = await store.update(key("a"), lambda record, now: Step(record, now).decision("done"))
    assert (decision.answer, decision.record.revision) == ("done", 1)
    assert await store.get(key("a")) == decision.record


async def test_a_write_is_recognised_by_its_name(
    store: "MongoTaskStore", monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create(creation("a"))
    heard: list[TaskChange] = []
    store.listen(heard.append)
    replace = store._writer._replace

    async def unheard(*details: Any) -> bool:
        assert await replace(*details)
        return False

    monkeypatch.setattr(store._writer, "_replace", unheard)
    decision = await store.update(key("a"), lambda record, now: Step(record, now).decision("done"))
    assert (decision.record.revision, len(heard)) == (1, 1)
    record = await store.get(key("a"))
    assert record == decision.record


async def test_a_purge_that_was_cut_short_is_ended(server: MongoServer, store: "MongoTaskStore") -> None:
    texts = store._collections.texts
    await texts.insert_one({"_id": "sha256:x/0000000000000001", "text": b""})
    own = {"format": 1, "write": "w", "texts": "sha256:x"}
    await store._collections.tasks.insert_one({"_id": "sha256:x", "sealwork": own})
    await store.initialize()
    assert await texts.count_documents({}) == 0
    document = await store._collections.tasks.find_one({"_id": "sha256:x"})
    assert document == {"_id": "sha256:x", "sealwork": {"format": 1, "write": "w"}}


async def test_a_closed_store(server: MongoServer) -> None:
    opened = await MongoTaskStore.open(fresh_database(server))
    await opened.close()
    await opened.close()
    assert await fault_of(opened.now_ms()) is StoreFault.CLOSED
