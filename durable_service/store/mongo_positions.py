"""The order of changes on MongoDB, without transactions.

A write of a task leaves its document pending, under the name of that write. Afterwards a position is taken
from the counter and set on the document, if it is pending under that name still. Whoever reads changes

1. reads the counter, `latest`;
2. looks for documents that are pending, and gives each a new position itself;
3. reads documents with a position after its cursor and up to `latest`.

Nothing is ever skipped. A position p is taken only after the write that it is for is confirmed, and that
write stays pending until it has a position or a later write replaces it. So when p is in `latest`, the
document was pending before the look of step 2. Either it had its position by then, and step 3 finds it; or
the look found it, and it gets a position above `latest`, to be found behind the cursor that this reader ends
with: the late setting of p then finds the document no longer pending under its name and does nothing. What
becomes pending after the look gets its position after that, above `latest`. A process that dies between its
write and the position leaves a pending document, which the next reader settles.

Positions that were taken twice for one write leave gaps, which mean nothing.
"""

import asyncio
from typing import Any, Final

from pymongo import ReturnDocument, UpdateOne
from pymongo.errors import PyMongoError

from durable_service.store.base import StoreUnavailable
from durable_service.store.mongo_tasks import MongoTasks, translated

STORE: Final = "store"
# Writes that come within this time get their positions together.
_GATHER_SECONDS: Final = 0.01
_PENDING: Final = {"sealwork.pending": {"$gt": ""}}


class Positions:
    """Gives confirmed writes their positions, off the way of whoever made them."""

    def __init__(self, collections: MongoTasks) -> None:
        self._collections = collections
        self._noted: dict[str, str] = {}
        self._woken = asyncio.Event()
        # Within one process nobody takes a position for what another is giving one at the moment.
        self._giving = asyncio.Lock()

    def note(self, task: str, write: str) -> None:
        """This write is confirmed and pending."""
        self._noted[task] = write
        self._woken.set()

    async def run(self) -> None:
        """Gives positions until cancelled. What fails is left to the next reader."""
        while True:
            await self._woken.wait()
            await asyncio.sleep(_GATHER_SECONDS)
            self._woken.clear()
            try:
                async with self._giving:
                    noted, self._noted = self._noted, {}
                    await self._give(list(noted.items()))
            except (PyMongoError, StoreUnavailable):
                continue

    async def settled(self) -> int:
        """The latest position; every write that was confirmed before is at one, or at a later one."""
        with translated():
            async with self._giving:
                latest = await self._latest()
                pending = await self._pending()
                if pending:
                    await self._give(pending)
                    # Once more, so that a reader gets what was confirmed before it asked.
                    latest = await self._latest()
                    await self._give(await self._pending())
                return latest

    async def _latest(self) -> int:
        counter = await self._collections.store.find_one({"_id": STORE}, {"position": 1})
        return 0 if counter is None else int(counter["position"])

    async def _pending(self) -> list[tuple[str, str]]:
        found = self._collections.tasks.find(_PENDING, {"sealwork.pending": 1, "updatedAt": 1})
        documents = await found.to_list()
        documents.sort(key=lambda document: (document["updatedAt"], document["sealwork"]["pending"]))
        return [(document["_id"], document["sealwork"]["pending"]) for document in documents]

    async def _give(self, pending: list[tuple[str, str]]) -> None:
        if not pending:
            return
        now_ms = self._collections.clock.latest_ms
        counter: Any = await self._collections.store.find_one_and_update(
            {"_id": STORE},
            {"$inc": {"position": len(pending)}, "$max": {"nowMs": now_ms}},
            return_document=ReturnDocument.AFTER,
        )
        first = int(counter["position"]) - len(pending) + 1
        settings = [
            UpdateOne(
                {"_id": task, "sealwork.pending": write},
                {"$set": {"sealwork.position": first + place}, "$unset": {"sealwork.pending": ""}},
            )
            for place, (task, write) in enumerate(pending)
        ]
        await self._collections.tasks.bulk_write(settings, ordered=False)
        for task, write in pending:
            if self._noted.get(task) == write:
                del self._noted[task]
