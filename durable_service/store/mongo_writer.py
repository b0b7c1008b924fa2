"""Writing tasks on MongoDB: one document, compared and set.

Every write has a name, which the document keeps until the next one. A write goes through while the document
has the revision and the name that it was decided on, and while whether its lease is over is as it was then:
that is asked of the server's clock in the filter itself. A write whose answer was lost is recognised by its
name.
"""

import asyncio
import contextlib
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import count
from typing import Any, Final, TypeAlias

from pymongo.errors import DuplicateKeyError, PyMongoError

from durable_service.core.definition import TaskKey
from durable_service.core.errors import DomainError, Reason
from durable_service.core.model import TaskRecord
from durable_service.core.retention import purgeable, tombstone
from durable_service.core.step import Decision
from durable_service.mongo_connection import is_uncertain
from durable_service.store.base import Answer, Purged, StoreLimits, TaskChange
from durable_service.store.mongo_clock import Instant
from durable_service.store.mongo_document import (
    Stored,
    document_id,
    new_document,
    tombstone_document,
    trim_document,
    update_document,
)
from durable_service.store.mongo_journal import Entry, rewritten, within_age
from durable_service.store.mongo_positions import Positions
from durable_service.store.mongo_tasks import NOW, MongoTasks, Reading, text_id, translated
from durable_service.store.turns import Turns
from durable_service.store.updates import not_found

# What a command makes of what there is; it may be asked several times.
Decide: TypeAlias = Callable[[Reading], Awaitable[Decision[Answer]]]

TRIES: Final = 32
_FIRST_PAUSE_SECONDS: Final = 0.005
_LONGEST_PAUSE_SECONDS: Final = 0.2


class MongoWriter:
    """The one way in which documents of tasks change; those of one task one after another in this process."""

    def __init__(
        self,
        collections: MongoTasks,
        positions: Positions,
        limits: StoreLimits,
        committed: Callable[[TaskChange], None],
    ) -> None:
        self._collections = collections
        self._positions = positions
        self._limits = limits
        self._committed = committed
        self._turns = Turns()
        # Names of one process are in the order of its writes.
        self._process = secrets.token_hex(8)
        self._writes = count(1)

    async def change(self, key: TaskKey, decide: Decide[Answer]) -> Decision[Answer]:
        """Runs a command and writes what it decides.

        Raises:
            DomainError: what the command raises; CONTENTION when other processes were quicker every time;
                STORE_UNAVAILABLE.
        """
        async with self._turns.of(key):
            made: dict[str, tuple[TaskRecord | None, Decision[Answer]]] = {}
            async for _ in self._tries():
                with translated():
                    reading = await self._collections.read(key)
                stored = reading.stored
                if stored is not None and stored.write in made:
                    return self._tell(stored, *made[stored.write])
                decision = await decide(reading)
                if not decision.written:
                    return decision
                write = self._name()
                before = None if stored is None else stored.record
                made[write] = before, decision
                if await self._write(reading, decision, write):
                    self._tell_of(document_id(key), write, before, decision)
                    return decision
            raise DomainError(Reason.CONTENTION, "others changed the task at the same time, again and again")

    async def adopt(self, key: TaskKey) -> None:
        """Writes this implementation's own part beside what another one wrote, which stays as it is."""

        async def decide(reading: Reading) -> Decision[None]:
            if reading.stored is None:
                raise not_found()
            return Decision(reading.stored.record, None, written=reading.stored.write is None)

        await self.change(key, decide)

    async def purge(self, key: TaskKey, ended_before_ms: int) -> Purged | None:
        """Puts a tombstone in the place of a task that ended before an instant; None when it did not."""
        async with self._turns.of(key):
            async for _ in self._tries():
                with translated():
                    reading = await self._collections.read(key)
                    stored = reading.stored
                    if stored is None or not purgeable(stored.record, ended_before_ms):
                        return None
                    buried = tombstone(stored.record, reading.instant.ms)
                    document = tombstone_document(stored, buried, self._name())
                    replaced = await self._collections.tasks.replace_one(stored.unchanged, document)
                    if not replaced.matched_count:
                        continue
                    self._committed(TaskChange(stored.record, None))
                    await self.clear(stored.id)
                artifacts = stored.record.artifacts.values()
                return Purged(key, tuple(artifact.blob_key for artifact in artifacts))
            raise DomainError(Reason.CONTENTION, "others changed the task at the same time, again and again")

    async def clear(self, task: str) -> None:
        """Removes the texts of a purged task: after its tombstone, which says that they are there still."""
        await self._drop_texts(task, text_id(task, 2**53))
        await self._collections.tasks.update_one(
            {"_id": task, "sealwork.texts": task}, {"$unset": {"sealwork.texts": ""}}
        )

    async def trim(self, key: TaskKey, most: int) -> int:
        """Drops up to `most` entries of a journal that are too old; how many there were."""
        async with self._turns.of(key):
            with translated():
                reading = await self._collections.read(key)
                stored = reading.stored
                if stored is None or stored.write is None:
                    return 0
                young = within_age(stored.journal, self._limits, reading.instant.ms)
                old = min(len(stored.journal) - len(young), most)
                kept = stored.journal[old:]
                update = trim_document(kept, self._name())
                if (
                    not old
                    or not (await self._collections.tasks.update_one(stored.unchanged, update)).matched_count
                ):
                    return 0
                await self._forget(stored, stored.journal[:old])
                return old

    async def _write(self, reading: Reading, decision: Decision[Answer], write: str) -> bool:
        """Whether it is known to be written; when it is not, reading again tells."""
        try:
            with contextlib.suppress(DuplicateKeyError):
                if reading.stored is None:
                    return await self._insert(decision, reading.instant, write)
                return await self._replace(reading.stored, decision, reading.instant, write)
        except PyMongoError as error:
            if not is_uncertain(error):
                with translated():
                    raise
        return False

    async def _insert(self, decision: Decision[Answer], instant: Instant, write: str) -> bool:
        journal = rewritten((), decision.events, self._limits, instant.ms)
        await self._collections.tasks.insert_one(new_document(decision.record, journal, write))
        return True

    async def _replace(
        self, stored: Stored, decision: Decision[Answer], instant: Instant, write: str
    ) -> bool:
        journal = rewritten(stored.journal, decision.events, self._limits, instant.ms)
        # Before the write that takes them out of the document: what is confirmed has its text somewhere.
        await self._keep_texts(stored.id, journal.moved)
        condition = {**stored.unchanged, **_lease_is_as(stored.record, instant)}
        update = update_document(stored, decision.record, journal, write)
        result = await self._collections.tasks.update_one(condition, update)
        if not result.matched_count:
            return False
        await self._forget(stored, journal.dropped)
        return True

    async def _keep_texts(self, task: str, entries: Sequence[Entry]) -> None:
        if entries:
            documents = [{"_id": text_id(task, entry.sequence), "text": entry.text} for entry in entries]
            names = [document["_id"] for document in documents]
            # Left by somebody who died, or lost the race, after this same step: the same texts.
            known = {
                found["_id"] async for found in self._collections.texts.find({"_id": {"$in": names}}, {})
            }
            fresh = [document for document in documents if document["_id"] not in known]
            if fresh:
                await self._collections.texts.insert_many(fresh, ordered=False)

    async def _forget(self, stored: Stored, dropped: Sequence[Entry]) -> None:
        """Removes the texts of dropped entries; nobody reads them, so a failure does no harm."""
        if any(entry.text is None for entry in dropped):
            with contextlib.suppress(PyMongoError):
                await self._drop_texts(stored.id, text_id(stored.id, dropped[-1].sequence))

    async def _drop_texts(self, task: str, last: str) -> None:
        await self._collections.texts.delete_many({"_id": {"$gte": text_id(task, 0), "$lte": last}})

    def _tell(
        self, stored: Stored, before: TaskRecord | None, decision: Decision[Answer]
    ) -> Decision[Answer]:
        assert stored.write is not None  # noqa: S101 - it is how the decision was found
        self._tell_of(stored.id, stored.write, before, decision)
        return decision

    def _tell_of(self, task: str, write: str, before: TaskRecord | None, decision: Decision[Answer]) -> None:
        if before is None or before.revision != decision.record.revision:
            self._positions.note(task, write)
        self._committed(TaskChange(before, decision.record, decision.events))

    def _name(self) -> str:
        return f"{self._process}-{next(self._writes):012x}"

    async def _tries(self) -> AsyncIterator[int]:
        """Each but the first after a pause that grows, and is never the same for two processes."""
        pause = _FIRST_PAUSE_SECONDS
        for number in range(TRIES):
            if number:
                await asyncio.sleep(random.uniform(0, pause))  # noqa: S311 - no secret
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            yield number


def _lease_is_as(record: TaskRecord, instant: Instant) -> dict[str, Any]:
    """The filter for which a lease that was over at an instant is over, and one that was not is not.

    A lease is found over by a reckoned moment when the server's clock was set back. Then the server would
    call it live, and is not asked.
    """
    if record.lease is None:
        return {}
    if record.live_lease(instant.ms) is not None:
        return {"$expr": {"$gt": ["$lease.expiresAt", NOW]}}
    return {} if instant.behind else {"$expr": {"$lte": ["$lease.expiresAt", NOW]}}
