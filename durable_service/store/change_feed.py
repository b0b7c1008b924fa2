"""What other processes on one database have committed, told here as if this one had done it.

A store that processes share finds the changes by their positions. A message of the database wakes the feed; a
slow look of its own finds what no message told, so that a lost one costs time alone.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Protocol

from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.definition import TaskKey
from durable_service.core.errors import DomainError
from durable_service.core.model import TaskEvent, TaskRecord
from durable_service.store.base import EventPage, TaskChange

LOOK_SECONDS: Final = 2.0
_AT_ONCE: Final = 200
_KNOWN: Final = 10_000
_AFTER_FAILURE_SECONDS: Final = 1.0
_NOTHING: Final = CanonicalJson("null")


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Tasks that were changed after a position.

    Attributes:
        records: in the order of their latest change; a page may repeat what an earlier one had.
        position: nothing that is not in this page will appear up to it, so the next page begins there.
        more: there is a further page now.
    """

    records: tuple[TaskRecord, ...]
    position: int
    more: bool


class FeedSource(Protocol):
    """The part of a store that a feed reads."""

    async def feed_position(self) -> int:
        """The position to begin at: of what is committed now."""

    async def feed_page(self, after: int, limit: int) -> FeedPage:
        """Tasks of all tenants that were changed after a position, renewals aside."""

    async def events(self, key: TaskKey, after: int, limit: int) -> EventPage:
        """As `TaskStore.events`."""


class ChangeFeed:
    """Tells of each committed change once, whoever made it.

    What a task was before another process changed it is what was told of it here last; of tasks that were not
    heard of for long it is forgotten, and `before` is None then.

    Args:
        tell: called on the event loop.
        look_seconds: how long a change may go unheard when no message comes.
    """

    def __init__(
        self,
        source: FeedSource,
        tell: Callable[[Iterable[TaskChange]], None],
        *,
        look_seconds: float = LOOK_SECONDS,
        known: int = _KNOWN,
    ) -> None:
        self._source = source
        self._tell = tell
        self._look_seconds = look_seconds
        self._most_known = known
        self._known: OrderedDict[TaskKey, TaskRecord] = OrderedDict()
        self._purged: OrderedDict[TaskKey, None] = OrderedDict()
        self._woken = asyncio.Event()
        self._position: int | None = None

    def committed(self, change: TaskChange) -> None:
        """Tells of a commit of this process; those of one task come in the order of their revisions.

        What was found in the database in the meantime, this very commit or a later one, was told already.
        """
        record = change.after
        if record is not None:
            if self._was_told(change.before, record):
                return
            self._remember(record)
        elif change.before is not None:
            self._forget(change.before.key)
        self._tell((change,))

    def wake(self) -> None:
        """Something was committed somewhere."""
        self._woken.set()

    async def begin(self) -> None:
        """Notes where to begin: what is committed from here on is told."""
        self._position = await self._source.feed_position()

    async def run(self) -> None:
        """Tells until cancelled; a database that is away is asked again."""
        while True:
            try:
                await self._catch_up()
                wait_seconds = self._look_seconds
            except DomainError:
                wait_seconds = _AFTER_FAILURE_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_seconds):
                    await self._woken.wait()

    async def _catch_up(self) -> None:
        more = True
        while more:
            # Cleared before the look: what is committed during it wakes once more.
            self._woken.clear()
            if self._position is None:
                await self.begin()
            page = await self._source.feed_page(self._position or 0, _AT_ONCE)
            for record in page.records:
                await self._tell_remote(record)
            self._position = page.position
            more = page.more

    async def _tell_remote(self, record: TaskRecord) -> None:
        if not self._is_news(record):
            return
        before = self._known.get(record.key)
        events = await self._events(record, before)
        # This process may have changed the task while the entries were read, and told of that.
        if self._is_news(record):
            self._remember(record)
            self._tell((TaskChange(before, record, events, remote=True),))

    async def _events(self, record: TaskRecord, before: TaskRecord | None) -> tuple[TaskEvent, ...]:
        """The entries since; when the task is new here, those of its latest change cannot be told apart."""
        if before is None or before.last_sequence >= record.last_sequence:
            return ()
        try:
            return (await self._source.events(record.key, before.last_sequence, _AT_ONCE)).events
        except DomainError:
            # Purged since, or no longer kept.
            return ()

    def _was_told(self, before: TaskRecord | None, record: TaskRecord) -> bool:
        known = self._known.get(record.key)
        if known is None or known.revision < record.revision:
            return False
        # A renewal leaves the revision, and nobody else tells of it.
        renewal = before is not None and before.revision == record.revision
        return not renewal or known.revision > record.revision

    def _is_news(self, record: TaskRecord) -> bool:
        if record.key in self._purged:
            # It was read before it was purged.
            return False
        known = self._known.get(record.key)
        return known is None or record.revision > known.revision or _renews(known, record)

    def _forget(self, key: TaskKey) -> None:
        self._known.pop(key, None)
        self._purged[key] = None
        if len(self._purged) > self._most_known:
            self._purged.popitem(last=False)

    def _remember(self, record: TaskRecord) -> None:
        self._known[record.key] = _outline(record)
        self._known.move_to_end(record.key)
        if len(self._known) > self._most_known:
            self._known.popitem(last=False)


def _renews(known: TaskRecord, record: TaskRecord) -> bool:
    return (
        record.revision == known.revision
        and record.lease is not None
        and known.lease is not None
        and record.lease.expires_at_ms > known.lease.expires_at_ms
    )


def _outline(record: TaskRecord) -> TaskRecord:
    """The record without what may be large: none of it tells what a change means."""
    return replace(
        record,
        definition=replace(record.definition, input=None),
        actions=MappingProxyType(
            {name: replace(action, args=_NOTHING) for name, action in record.actions.items()}
        ),
        extensions=MappingProxyType({}),
        artifacts=MappingProxyType({}),
        snapshots=MappingProxyType({}),
    )
