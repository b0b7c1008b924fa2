"""The collections of a store on MongoDB, and reading one task of them together with the time."""

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import PyMongoError

from durable_service.core.definition import TaskKey
from durable_service.core.model import TaskEvent, TaskRecord, Tombstone
from durable_service.mongo_connection import Database, Document, failure_of
from durable_service.store.base import StoreFault, StoreUnavailable
from durable_service.store.mongo_clock import Instant, ServerClock
from durable_service.store.mongo_document import (
    OWN,
    Stored,
    document_id,
    is_foreign,
    stored_of,
    tombstone_of,
)
from durable_service.store.mongo_journal import Entry
from durable_service.store.record_document import decode_event

Collection = AsyncCollection[Document]
_INSTANTS: CodecOptions[Document] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
# The server's time in the form that records have.
NOW: dict[str, str] = {"$toLong": "$$NOW"}


@dataclass(frozen=True, slots=True)
class Reading:
    """What there is under a key, and when that was so."""

    stored: Stored | None
    tombstone: Tombstone | None
    instant: Instant


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turns the driver's failures into those of a store.

    Raises:
        StoreUnavailable: the database did not do what was asked.
    """
    try:
        yield
    except PyMongoError as error:
        failure = failure_of(error)
        raise StoreUnavailable(StoreFault(failure.fault.value), failure.message) from None


class MongoTasks:
    """One store's collections.

    Attributes:
        tasks: one document for each task, and for each that was purged.
        texts: journal entries whose texts are no longer in the documents of their tasks.
        nonces: those that were used.
        store: what there is once: the format, the name of the content, and the latest position.
    """

    def __init__(self, database: Database, clock: ServerClock) -> None:
        self.database = database
        self.clock = clock
        self.tasks: Collection = database["durable_tasks"]
        self.texts: Collection = database["durable_events"]
        self.nonces: Collection = database["durable_nonces"]
        self.store: Collection = database["durable_store"]

    async def instant(self) -> Instant:
        """The time; one short question to the server."""
        hello = await self.database.command("hello", codec_options=_INSTANTS)
        return self.clock.read(int(hello["localTime"]))

    async def read(self, key: TaskKey) -> Reading:
        """What is under a key now."""
        found = await self._document(document_id(key))
        if found is None:
            return Reading(None, None, await self.instant())
        instant = self.clock.read(found["now"])
        buried = tombstone_of(found)
        if buried is not None:
            return Reading(None, buried if buried.key == key else None, instant)
        stored = stored_of(found)
        return Reading(stored if stored.record.key == key else None, None, instant)

    async def records(
        self, condition: dict[str, Any], order: Sequence[tuple[str, int]] = (), limit: int = 0
    ) -> list[TaskRecord]:
        """The records of all tasks that a filter finds."""
        return [stored.record async for stored, _ in self.found(condition, order, limit)]

    async def found(
        self, condition: dict[str, Any], order: Sequence[tuple[str, int]] = (), limit: int = 0
    ) -> AsyncIterator[tuple[Stored, Document]]:
        """The tasks that a filter finds, each with its document; the filter may match tombstones."""
        cursor = self.tasks.find(condition, {**OWN, "id": 1})
        if order:
            cursor = cursor.sort(list(order))
        async for document in cursor.limit(limit):
            whole = document
            if is_foreign(document):
                read = await self.tasks.find_one({"_id": document["_id"]})
                if read is None:
                    continue
                whole = read
            if tombstone_of(whole) is None:
                yield stored_of(whole), whole

    async def events(self, task: str, entries: Sequence[Entry]) -> tuple[TaskEvent, ...]:
        """The entries of a journal; one that is no longer kept is left out."""
        beside = [text_id(task, entry.sequence) for entry in entries if entry.text is None]
        texts: dict[str, bytes] = {}
        if beside:
            async for document in self.texts.find({"_id": {"$in": beside}}):
                texts[document["_id"]] = document["text"]
        found = (entry.text or texts.get(text_id(task, entry.sequence)) for entry in entries)
        return tuple(decode_event(text) for text in found if text is not None)

    async def _document(self, name: str) -> Document | None:
        stages: list[dict[str, Any]] = [{"$match": {"_id": name}}, {"$project": {**OWN, "now": NOW}}]
        found = await (await self.tasks.aggregate(stages)).to_list()
        if not found or not is_foreign(found[0]):
            return found[0] if found else None
        whole = await self.tasks.find_one({"_id": name})
        return None if whole is None else {**whole, "now": found[0]["now"]}


def text_id(task: str, sequence: int) -> str:
    """Names the text of a journal entry, in the order of the journal."""
    return f"{task}/{sequence:016d}"
