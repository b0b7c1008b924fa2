"""Learning that another process has committed something, so that the feed of changes looks at once."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from pymongo.errors import OperationFailure, PyMongoError

from durable_service.store.mongo_positions import STORE
from durable_service.store.mongo_tasks import MongoTasks

# For a server without change streams, which is one that is no replica set.
POLL_SECONDS: Final = 0.5
_AFTER_FAILURE_SECONDS: Final = 1.0
# A position is taken just before it is set, and that is what the stream tells of.
_SETTING_SECONDS: Final = 0.02
_NO_STREAMS: Final = frozenset({40573, 59, 115})


async def wake_on_changes(collections: MongoTasks, wake: Callable[[], None]) -> None:
    """Calls `wake` after every commit of any process, until cancelled.

    A stream that breaks begins anew, and what it missed is found by the look that follows. Its place needs no
    keeping: positions say what is new.
    """
    while True:
        try:
            await _follow(collections, wake)
        except OperationFailure as error:
            if error.code in _NO_STREAMS:
                await _poll(wake)
        except PyMongoError:
            pass
        await asyncio.sleep(_AFTER_FAILURE_SECONDS)


async def _follow(collections: MongoTasks, wake: Callable[[], None]) -> None:
    counted = [{"$match": {"documentKey._id": STORE}}]
    async with await collections.store.watch(counted, max_await_time_ms=2_000) as stream:
        wake()
        async for _ in stream:
            await asyncio.sleep(_SETTING_SECONDS)
            wake()


async def _poll(wake: Callable[[], None]) -> None:
    with contextlib.suppress(asyncio.TimeoutError):
        while True:
            await asyncio.sleep(POLL_SECONDS)
            wake()
