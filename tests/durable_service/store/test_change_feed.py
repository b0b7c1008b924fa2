"""The feed tells of what other processes commit, once and in order, whatever it meets on the way."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.definition import TaskKey
from durable_service.core.errors import DomainError
from durable_service.core.leases import renew
from durable_service.core.model import TaskRecord
from durable_service.core.outcomes import cancel
from durable_service.store.base import EventPage, StoreFault, StoreUnavailable, TaskChange
from durable_service.store.change_feed import ChangeFeed, FeedPage
from durable_service.store.contract.scene import TENANT, Scene, key
from durable_service.store.memory import MemoryTaskStore


class Elsewhere:
    """A database that another process writes to, and the changes that a feed on it tells here."""

    def __init__(self, *, known: int = 100, look_seconds: float = 60) -> None:
        self.store = MemoryTaskStore()
        self.scene = Scene(self.store)
        self.feed = ChangeFeed(self, self._tell, look_seconds=look_seconds, known=known)
        self.told: list[TaskChange] = []
        self.news = asyncio.Event()
        self.asked = 0
        self.away = False
        self.limit = 200
        # Held at each page, if a test wants to act in between.
        self.gate = asyncio.Event()
        self.gate.set()
        self.at_gate = asyncio.Event()

    def _tell(self, changes: Iterable[TaskChange]) -> None:
        self.told += changes
        self.news.set()

    async def feed_position(self) -> int:
        return (await self.store.changes(TENANT, 0, 0)).latest

    async def feed_page(self, after: int, limit: int) -> FeedPage:
        self.asked += 1
        if self.away:
            self.news.set()
            raise StoreUnavailable(StoreFault.UNREACHABLE, "away")
        limit = min(limit, self.limit)
        page = await self.store.changes(TENANT, after, limit)
        full = len(page.records) == limit
        position = page.records[-1][0] if full else page.latest
        records = tuple(record for _, record in page.records)
        self.at_gate.set()
        await self.gate.wait()
        return FeedPage(records, position, full)

    async def events(self, task: TaskKey, after: int, limit: int) -> EventPage:
        return await self.store.events(task, after, limit)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.feed.begin()
        run = asyncio.create_task(self.feed.run())
        try:
            yield
        finally:
            run.cancel()

    async def heard(self, count: int) -> list[TaskChange]:
        """Waits for that many changes, and takes them."""
        async with asyncio.timeout(30):
            while len(self.told) < count:
                self.news.clear()
                await self.news.wait()
        told, self.told = self.told, []
        assert len(told) == count
        return told


def seen(changes: list[TaskChange]) -> list[tuple[str, int | None, int]]:
    """Each task with its revisions before and after."""
    return [
        (
            change.after.key.task_id,
            None if change.before is None else change.before.revision,
            change.after.revision,
        )
        for change in changes
        if change.after is not None
    ]


async def test_a_change_is_told_once_woken() -> None:
    elsewhere = Elsewhere()
    await elsewhere.scene.create("before")
    async with elsewhere.running():
        await elsewhere.scene.create("a")
        elsewhere.feed.wake()
        (change,) = await elsewhere.heard(1)
        assert (seen([change]), change.remote) == ([("a", None, 0)], True)
        await elsewhere.scene.claim("a")
        elsewhere.feed.wake()
        (change,) = await elsewhere.heard(1)
        assert seen([change]) == [("a", 0, 1)]
        assert [event.type for event in change.events] == ["task.state", "lease.granted"]
        # Nothing that is known is told again.
        elsewhere.feed.wake()
        await elsewhere.scene.create("b")
        elsewhere.feed.wake()
        assert seen(await elsewhere.heard(1)) == [("b", None, 0)]


async def test_what_no_message_told_is_found_by_the_slow_look() -> None:
    elsewhere = Elsewhere(look_seconds=0.01)
    async with elsewhere.running():
        await elsewhere.scene.create("a")
        assert seen(await elsewhere.heard(1)) == [("a", None, 0)]


async def test_changes_of_one_task_in_between_are_one_change() -> None:
    elsewhere = Elsewhere()
    async with elsewhere.running():
        await elsewhere.scene.create("a")
        elsewhere.feed.wake()
        await elsewhere.heard(1)
        await elsewhere.scene.claim("a")
        await elsewhere.scene.run("a", cancel, "")
        elsewhere.feed.wake()
        (change,) = await elsewhere.heard(1)
        assert seen([change]) == [("a", 0, 2)]
        assert [event.sequence for event in change.events] == list(range(2, 2 + len(change.events)))
        assert len(change.events) >= 3


async def test_many_changes_come_in_pages() -> None:
    elsewhere = Elsewhere()
    elsewhere.limit = 2
    async with elsewhere.running():
        await elsewhere.scene.create("a", "b", "c", "d", "e")
        elsewhere.feed.wake()
        assert [name for name, _, _ in seen(await elsewhere.heard(5))] == ["a", "b", "c", "d", "e"]
        assert elsewhere.asked >= 3


async def test_a_database_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("durable_service.store.change_feed._AFTER_FAILURE_SECONDS", 0.01)
    elsewhere = Elsewhere()
    elsewhere.away = True
    async with elsewhere.running():
        async with asyncio.timeout(30):
            await elsewhere.news.wait()
        await elsewhere.scene.create("a")
        elsewhere.away = False
        assert seen(await elsewhere.heard(1)) == [("a", None, 0)]


async def test_what_is_committed_during_a_look_is_told_after_it() -> None:
    elsewhere = Elsewhere()
    elsewhere.gate.clear()
    async with elsewhere.running():
        elsewhere.feed.wake()
        await elsewhere.at_gate.wait()
        await elsewhere.scene.create("a")
        elsewhere.feed.wake()
        elsewhere.gate.set()
        assert seen(await elsewhere.heard(1)) == [("a", None, 0)]


async def test_a_commit_of_this_process_is_told_at_once_and_once() -> None:
    elsewhere = Elsewhere()
    async with elsewhere.running():
        record = await elsewhere.scene.create("a")
        elsewhere.feed.committed(TaskChange(None, record))
        elsewhere.feed.wake()
        await elsewhere.scene.create("b")
        elsewhere.feed.wake()
        first, second = await elsewhere.heard(2)
        assert seen([first, second]) == [("a", None, 0), ("b", None, 0)]
        assert (first.remote, second.remote) == (False, True)


async def test_a_later_change_of_another_process_is_not_followed_by_an_earlier_one_of_this() -> None:
    elsewhere = Elsewhere()
    before = await elsewhere.scene.create("a")
    await elsewhere.scene.claim("a")
    ours = await elsewhere.scene.record("a")
    async with elsewhere.running():
        await elsewhere.scene.run("a", cancel, "")
        # The feed is faster than the answer to our own write.
        elsewhere.feed.wake()
        assert seen(await elsewhere.heard(1)) == [("a", None, 2)]
        elsewhere.feed.committed(TaskChange(before, ours))
        assert elsewhere.told == []


async def test_our_commit_that_the_feed_has_found_is_not_told_twice() -> None:
    elsewhere = Elsewhere()
    async with elsewhere.running():
        record = await elsewhere.scene.create("a")
        elsewhere.feed.wake()
        await elsewhere.heard(1)
        elsewhere.feed.committed(TaskChange(None, record))
        assert elsewhere.told == []


async def test_every_renewal_of_this_process_is_told() -> None:
    elsewhere = Elsewhere()
    before = await elsewhere.scene.create("a")
    holder = await elsewhere.scene.claim("a")
    records: list[TaskRecord] = [await elsewhere.scene.record("a")]
    for lease_ms in (20_000, 1_000):
        await elsewhere.scene.run("a", renew, holder, lease_ms)
        records.append(await elsewhere.scene.record("a"))
    elsewhere.feed.committed(TaskChange(before, records[0]))
    for first, second in itertools.pairwise(records):
        elsewhere.feed.committed(TaskChange(first, second))
    assert [change.after for change in elsewhere.told] == records


async def test_a_purged_task_does_not_come_back() -> None:
    elsewhere = Elsewhere()
    elsewhere.gate.clear()
    async with elsewhere.running():
        record = await elsewhere.scene.create("a")
        elsewhere.feed.wake()
        await elsewhere.at_gate.wait()
        # The feed has read the task; before it tells of that, the task is gone.
        elsewhere.feed.committed(TaskChange(record, None))
        elsewhere.gate.set()
        await elsewhere.scene.create("b")
        elsewhere.feed.wake()
        purged, created = await elsewhere.heard(2)
        assert (purged.after, seen([created])) == (None, [("b", None, 0)])


async def test_what_was_not_heard_of_for_long_is_forgotten() -> None:
    elsewhere = Elsewhere(known=1)
    async with elsewhere.running():
        await elsewhere.scene.create("a", "b")
        elsewhere.feed.wake()
        await elsewhere.heard(2)
        await elsewhere.scene.claim("a")
        elsewhere.feed.wake()
        (change,) = await elsewhere.heard(1)
        assert (seen([change]), change.events) == ([("a", None, 1)], ())


async def test_large_parts_are_not_kept() -> None:
    elsewhere = Elsewhere()
    async with elsewhere.running():
        await elsewhere.scene.create("a")
        holder = await elsewhere.scene.claim("a")
        await elsewhere.scene.prepare("a", holder, "send")
        elsewhere.feed.wake()
        await elsewhere.heard(1)
        await elsewhere.scene.dispatch("a", holder, "send")
        elsewhere.feed.wake()
        (change,) = await elsewhere.heard(1)
        assert change.before is not None
        assert change.before.actions["send"].args == CanonicalJson("null")
        assert change.after == await elsewhere.scene.record("a")


async def test_entries_of_a_task_that_is_gone_are_none() -> None:
    elsewhere = Elsewhere()
    async with elsewhere.running():
        await elsewhere.scene.create("a")
        elsewhere.feed.wake()
        await elsewhere.heard(1)
        elsewhere.gate.clear()
        elsewhere.at_gate.clear()
        await elsewhere.scene.run("a", cancel, "")
        elsewhere.feed.wake()
        await elsewhere.at_gate.wait()
        assert await elsewhere.store.purge([key("a")], 2**53)
        with pytest.raises(DomainError):
            await elsewhere.store.events(key("a"), 0, 1)
        elsewhere.gate.set()
        (change,) = await elsewhere.heard(1)
        assert change.events == ()
