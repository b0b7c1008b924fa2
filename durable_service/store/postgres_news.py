"""What is committed on the database, told among the processes that serve it.

A message in the transaction that it tells of would let one such transaction commit at a time, the wait for
the disk included. So a process tells after its commits, once for all of them that are done, in a transaction
that writes nothing. Whatever gets lost on this way is found by the slow look of the feed.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Final

import psycopg

from durable_service.core.errors import DomainError
from durable_service.postgres.connections import Connection, connect, cut, refuse_read_only
from durable_service.store.change_feed import FeedPage
from durable_service.store.postgres_database import PostgresDatabase
from durable_service.store.postgres_rows import RECORD_COLUMNS, RECORD_TABLES, record_of, seen

CHANNEL: Final = "durable_changes"
# No more messages than this reach the others, however many commits there are.
_BETWEEN_MESSAGES_SECONDS: Final = 0.005
_AFTER_FAILURE_SECONDS: Final = (0.1, 2.0)
_ASK_AGAIN_SECONDS: Final = 30.0
# Of changes beyond the horizon: they are told early where that is cheap, and in full when it has passed them.
_MOST_AHEAD: Final = 500

_LISTEN: Final = f"LISTEN {CHANNEL}"
_TELL: Final = "SELECT pg_notify(%(channel)s, %(writer)s)"
_SEEN: Final = seen("SELECT max(position) FROM durable_tasks")
_POSITION: Final = f"WITH {_SEEN} SELECT reached FROM seen"  # noqa: S608 - as below
_PAGE: Final = f"""
WITH {_SEEN}
SELECT seen.reached, seen.horizon, changed.* FROM seen LEFT JOIN LATERAL (
    SELECT task.position, {RECORD_COLUMNS} FROM {RECORD_TABLES}
    WHERE task.position > %(after)s AND task.writer <> %(writer)s
        AND task.position <> ALL(%(ahead)s::bigint[])
        AND (%(early)s::boolean OR task.position < (SELECT horizon FROM seen))
    ORDER BY task.position LIMIT %(limit)s
) AS changed ON true
"""  # noqa: S608 - put together from texts that stand in this file


class PostgresChanges:
    """The changes of other processes, in the order of their transactions.

    Positions are transaction ids. They do not commit in their order, so a page's position stays below the
    oldest transaction that is still at work: nothing can appear below that any more.
    """

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self.writer = new_writer()
        # Told although they are beyond the horizon.
        self._ahead: set[int] = set()

    def doubt(self) -> None:
        """Whether the last write has happened is unknown: if it has, it is told as another process's."""
        self.writer = new_writer()

    async def feed_position(self) -> int:
        ((position,),) = await self._database.ask(_POSITION)
        return int(position)

    async def feed_page(self, after: int, limit: int) -> FeedPage:
        self._ahead = {position for position in self._ahead if position > after}
        early = len(self._ahead) < _MOST_AHEAD
        values = {"after": after, "limit": limit, "writer": self.writer, "early": early}
        rows = await self._database.ask(_PAGE, {**values, "ahead": sorted(self._ahead)})
        reached, horizon = map(int, rows[0][:2])
        found = [(int(row[2]), record_of(row[3:])) for row in rows if row[2] is not None]
        self._ahead.update(position for position, _ in found if position >= horizon)
        more = len(found) == limit
        if more:
            reached = min(reached, found[-1][0])
        return FeedPage(tuple(record for _, record in found), max(after, reached), more)


class Announcer:
    """Tells the other processes that something was committed here."""

    def __init__(self, database: PostgresDatabase, changes: PostgresChanges) -> None:
        self._database = database
        self._changes = changes
        self._committed = asyncio.Event()

    def note(self) -> None:
        """Something was committed."""
        self._committed.set()

    async def run(self) -> None:
        """Tells until cancelled."""
        while True:
            await self._committed.wait()
            self._committed.clear()
            try:
                values = {"channel": CHANNEL, "writer": str(self._changes.writer)}
                await self._database.ask(_TELL, values)
            except DomainError:
                # The others look for themselves.
                continue
            finally:
                await asyncio.sleep(_BETWEEN_MESSAGES_SECONDS)


class NewsListener:
    """Hears what the other processes commit, on a connection of its own."""

    def __init__(self, text: str, changes: PostgresChanges, wake: Callable[[], None]) -> None:
        self._text = text
        self._changes = changes
        self._wake = wake
        self._connection: Connection | None = None
        self._doubts = 0
        self.listening = asyncio.Event()

    def distrust(self) -> None:
        """Leaves a server that is no primary any more: it would go on saying nothing for ever."""
        self._doubts += 1
        if self._connection is not None:
            cut(self._connection)

    async def run(self) -> None:
        """Listens until cancelled; connects again for as long as it takes."""
        wait_seconds, longest_seconds = _AFTER_FAILURE_SECONDS
        while True:
            try:
                doubts = self._doubts
                self._connection = connection = await connect(self._text)
                try:
                    if doubts != self._doubts:
                        # It may be one of those that the doubts were about.
                        continue
                    wait_seconds = _AFTER_FAILURE_SECONDS[0]
                    await self._listen(connection)
                finally:
                    self._connection = None
                    self.listening.clear()
                    await connection.close()
            except (psycopg.Error, OSError):
                await asyncio.sleep(random.uniform(wait_seconds / 2, wait_seconds))  # noqa: S311 - no secret
                wait_seconds = min(2 * wait_seconds, longest_seconds)

    async def _listen(self, connection: Connection) -> None:
        await connection.execute(_LISTEN)
        self.listening.set()
        # What was told while nobody listened.
        self._wake()
        while True:
            async for message in connection.notifies(timeout=_ASK_AGAIN_SECONDS):
                if message.payload != str(self._changes.writer):
                    self._wake()
            # Changes nothing, but the server says with the answer whether it is a primary still.
            await connection.execute(_LISTEN)
            refuse_read_only(connection)


def new_writer() -> int:
    """A number that names this process among the writers, for as long as it knows what it has written."""
    return random.SystemRandom().getrandbits(62)
