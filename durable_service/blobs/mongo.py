"""Bytes in a collection of a MongoDB database: durable, for any number of processes.

Documents have the form that other implementations read and write: the bytes as base64 text and their SHA-256
as hex text under the key. Beside these this one notes when the bytes were put; what has no such note was put
by another implementation, and is never taken for old.
"""

import base64
import binascii
import datetime as dt
import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

from pymongo import ReturnDocument
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError, PyMongoError

from durable_service.blobs.base import checked_data, checked_key, collision, corrupt
from durable_service.core.errors import DomainError, Reason
from durable_service.core.limits import BLOB_BYTES
from durable_service.mongo_connection import Client, Document, MongoFailure, connect, database_of, failure_of

COLLECTION: Final = "durable_artifacts"
_KEYS_AT_ONCE: Final = 1_000
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class MongoBlobStore:
    """A store beside the tasks. What it has answered is in the journals of most members."""

    def __init__(self, client: Client, limit_bytes: int = BLOB_BYTES) -> None:
        """Keep bytes in the database that the client's address names; see `open`."""
        self._client = client
        self._collection: AsyncCollection[Document] = database_of(client)[COLLECTION]
        self._limit_bytes = limit_bytes

    @classmethod
    async def open(cls, url: str, limit_bytes: int = BLOB_BYTES) -> Self:
        """A store on the database of a URL; its index is made when it is not there.

        Raises:
            DomainError: STORE_UNAVAILABLE; the text says why.
        """
        try:
            client = connect(url)
        except MongoFailure as failure:
            raise DomainError(Reason.STORE_UNAVAILABLE, failure.message) from None
        store = cls(client, limit_bytes)
        try:
            with _translated():
                await store._collection.create_index([("putAt", 1), ("_id", 1)])
        except BaseException:
            await client.close()
            raise
        return store

    @property
    def durable(self) -> bool:
        return True

    async def put(self, key: str, data: bytes) -> None:
        checked_key(key)
        kept = {"data": base64.b64encode(checked_data(data, self._limit_bytes)).decode(), "hash": _hash(data)}
        while (document := await self._take(key, kept)) is None:
            # They were removed while two writers raced for the key: now there is room.
            continue
        if _bytes_of(document) != data:
            raise collision()

    async def get(self, key: str) -> bytes | None:
        with _translated():
            document = await self._collection.find_one({"_id": checked_key(key)})
        return None if document is None else _bytes_of(document)

    async def delete(self, key: str) -> None:
        with _translated():
            await self._collection.delete_one({"_id": checked_key(key)})

    async def keys_before(self, put_before_ms: int) -> AsyncIterator[str]:
        before = {"putAt": {"$lt": _date(put_before_ms)}}
        conditions: dict[str, Any] | None = before
        while conditions is not None:
            page = await self._page(conditions)
            for document in page:
                yield document["_id"]
            conditions = {"$and": [before, _after(page[-1])]} if len(page) == _KEYS_AT_ONCE else None

    async def delete_if_before(self, key: str, put_before_ms: int) -> bool:
        # One document: a put of the same bytes comes before this, and it finds them young, or after.
        old = {"_id": checked_key(key), "putAt": {"$lt": _date(put_before_ms)}}
        with _translated():
            return (await self._collection.delete_one(old)).deleted_count == 1

    async def close(self) -> None:
        await self._client.close()

    async def _take(self, key: str, kept: dict[str, str]) -> Document | None:
        """Takes the key when it is free, makes the same bytes young again, and reads what it holds."""
        with _translated():
            try:
                return await self._collection.find_one_and_update(
                    {"_id": key},
                    [{"$set": _unless_taken(kept)}],
                    upsert=True,
                    return_document=ReturnDocument.AFTER,
                )
            except DuplicateKeyError:
                # Another writer was faster; its bytes are there.
                return await self._collection.find_one_and_update(
                    {"_id": key}, [{"$set": _unless_taken(kept)}], return_document=ReturnDocument.AFTER
                )

    async def _page(self, conditions: dict[str, Any]) -> list[Document]:
        with _translated():
            found = self._collection.find(conditions, {"putAt": 1}).sort([("putAt", 1), ("_id", 1)])
            return await found.limit(_KEYS_AT_ONCE).to_list()


def _unless_taken(kept: dict[str, str]) -> dict[str, Any]:
    """The members of a new document; of one that is there, all stay as they are but the note of its age."""
    is_new = {"$eq": [{"$type": "$data"}, "missing"]}
    # A note that is missing stays missing: whoever put these bytes decides when they are old.
    is_dated = {"$ne": [{"$type": "$putAt"}, "missing"]}
    return {
        "data": {"$cond": [is_new, {"$literal": kept["data"]}, "$data"]},
        "hash": {"$cond": [is_new, {"$literal": kept["hash"]}, "$hash"]},
        "putAt": {"$cond": [{"$or": [is_new, is_dated]}, "$$NOW", "$$REMOVE"]},
    }


def _bytes_of(document: Document) -> bytes:
    """The bytes that a document holds.

    Raises:
        DomainError: BLOB_CORRUPT.
    """
    try:
        data = base64.b64decode(document["data"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise corrupt() from None
    if document.get("hash") != _hash(data):
        raise corrupt()
    return data


def _after(document: Document) -> dict[str, Any]:
    """What comes after a document in the order of age and key."""
    at, key = document["putAt"], document["_id"]
    return {"$or": [{"putAt": {"$gt": at}}, {"putAt": at, "_id": {"$gt": key}}]}


def _date(at_ms: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(milliseconds=at_ms)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except PyMongoError as error:
        raise DomainError(Reason.STORE_UNAVAILABLE, failure_of(error).message) from None
