"""The blob store on MongoDB passes its contract, and what is special about it."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from durable_service.blobs.contract import (
    CONTRACT_BYTES,
    KEY,
    OTHER_KEY,
    START_MS,
    BlobStoreContract,
    reason,
)
from durable_service.core.errors import Reason
from tests.durable_service.store.mongo_fixture import MongoServer, fresh_database, require_mongo

pymongo = pytest.importorskip("pymongo")

from durable_service.blobs.mongo import MongoBlobStore  # noqa: E402 - an extra

pytestmark = pytest.mark.process

# SHA-256 of b"hello".
HELLO_HASH = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"


class MongoBlobHarness:
    """A store in a database of its own; the server's clock stands until it is advanced."""

    blobs: MongoBlobStore

    def __init__(self, server: MongoServer) -> None:
        self.server = server
        self.url = fresh_database(server)
        self.now_ms = START_MS

    async def start(self) -> None:
        self.server.hold_clock(self.now_ms)
        self.blobs = await MongoBlobStore.open(self.url, CONTRACT_BYTES)

    async def advance(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.server.hold_clock(self.now_ms)

    async def reopen(self) -> bool:
        await self.blobs.close()
        self.blobs = await MongoBlobStore.open(self.url, CONTRACT_BYTES)
        return True

    @property
    def documents(self) -> Any:
        return self.blobs._collection


@pytest.fixture
async def blob_harness(mongo_server: MongoServer) -> AsyncIterator[MongoBlobHarness]:
    harness = MongoBlobHarness(mongo_server)
    try:
        await harness.start()
        yield harness
        await harness.blobs.close()
    finally:
        mongo_server.hold_clock(0)


class TestMongoBlobStore(BlobStoreContract):
    pass


async def test_documents_have_the_form_of_other_implementations(blob_harness: MongoBlobHarness) -> None:
    await blob_harness.blobs.put(KEY, b"hello")
    document = await blob_harness.documents.find_one({"_id": KEY})
    assert (document["data"], document["hash"]) == ("aGVsbG8=", HELLO_HASH)
    assert set(document) == {"_id", "data", "hash", "putAt"}


async def test_documents_of_other_implementations(blob_harness: MongoBlobHarness) -> None:
    blobs = blob_harness.blobs
    await blob_harness.documents.insert_one({"_id": KEY, "data": "aGVsbG8=", "hash": HELLO_HASH})
    assert await blobs.get(KEY) == b"hello"
    await blobs.put(KEY, b"hello")
    assert await reason(blobs.put(KEY, b"other")) is Reason.BLOB_COLLISION
    # Nothing that was put elsewhere is collected here, also when it was put here as well.
    assert [key async for key in blobs.keys_before(START_MS * 2)] == []
    assert not await blobs.delete_if_before(KEY, START_MS * 2)
    assert await blob_harness.documents.find_one({"_id": KEY}) == {
        "_id": KEY,
        "data": "aGVsbG8=",
        "hash": HELLO_HASH,
    }
    await blobs.delete(KEY)
    assert await blobs.get(KEY) is None


@pytest.mark.parametrize(
    "damage",
    [
        {"$set": {"data": "aGVsbHA="}},
        {"$set": {"data": "no base64"}},
        {"$set": {"data": 5}},
        {"$set": {"hash": HELLO_HASH.upper()}},
        {"$unset": {"hash": ""}},
    ],
)
async def test_damage_is_noticed(blob_harness: MongoBlobHarness, damage: dict[str, Any]) -> None:
    await blob_harness.blobs.put(KEY, b"hello")
    await blob_harness.documents.update_one({"_id": KEY}, damage)
    assert await reason(blob_harness.blobs.get(KEY)) is Reason.BLOB_CORRUPT
    assert await reason(blob_harness.blobs.put(KEY, b"hello")) is Reason.BLOB_CORRUPT


async def test_the_largest_bytes(mongo_server: MongoServer) -> None:
    blobs = await MongoBlobStore.open(fresh_database(mongo_server))
    data = hashlib.sha256(b"seed").digest() * 250_000
    await blobs.put(KEY, data)
    await blobs.put(KEY, data)
    assert await blobs.get(KEY) == data
    assert await reason(blobs.put(KEY, b"x" + data)) is Reason.ARTIFACT_TOO_LARGE
    await blobs.close()


async def test_pages_of_old_keys(blob_harness: MongoBlobHarness) -> None:
    blobs = blob_harness.blobs
    await blobs.put(KEY, b"x")
    dated = (await blob_harness.documents.find_one({"_id": KEY}))["putAt"]
    await blobs.delete(KEY)
    await blob_harness.documents.insert_many(
        [{"_id": f"{number:064x}", "data": "", "hash": "", "putAt": dated} for number in range(2_500)]
    )
    keys = [key async for key in blobs.keys_before(START_MS + 1)]
    assert keys == [f"{number:064x}" for number in range(2_500)]


async def test_different_bytes_over_many_connections(mongo_server: MongoServer) -> None:
    url = fresh_database(mongo_server)
    stores = await asyncio.gather(*(MongoBlobStore.open(url) for _ in range(4)))
    for key in (KEY, OTHER_KEY):
        puts = (store.put(key, bytes([number])) for number, store in enumerate(stores))
        answers = await asyncio.gather(*puts, return_exceptions=True)
        winners = [number for number, answer in enumerate(answers) if answer is None]
        assert len(winners) == 1
        assert {await store.get(key) for store in stores} == {bytes(winners)}
    for store in stores:
        await store.close()


async def test_a_kill_loses_nothing(tmp_path: Path) -> None:
    require_mongo()
    server = MongoServer(tmp_path)
    await asyncio.to_thread(server.start)
    try:
        blobs = await MongoBlobStore.open(f"{server.url}/blobs")
        await blobs.put(KEY, b"hello")
        server.kill()
        assert await reason(blobs.get(KEY)) is Reason.STORE_UNAVAILABLE
        await asyncio.to_thread(server.start)
        assert await blobs.get(KEY) == b"hello"
        assert await reason(blobs.put(KEY, b"other")) is Reason.BLOB_COLLISION
        await blobs.close()
    finally:
        server.kill()


@pytest.mark.parametrize("url", ["mongodb://127.0.0.1:1", "mongodb://"])
async def test_an_address_that_cannot_be_used(url: str) -> None:
    assert await reason(MongoBlobStore.open(url)) is Reason.STORE_UNAVAILABLE
