"""Journals are bounded by bytes and by age, and ended tasks are purged by how they ended."""
# ruff: noqa: S101

import pytest

from durable_service.core.errors import DomainError, Reason
from durable_service.core.model import Holder
from durable_service.core.outcomes import cancel, fail
from durable_service.core.states import TaskState
from durable_service.store.contract.scene import LEASE_MS, TENANT, Scene, StoreHarness, key

HOUR_MS = 3_600_000
# 400 bytes, for the quotes count: two of these are within the bound of 1,000 and three are not.
DATA = '"' + "x" * 398 + '"'


async def kept(harness: StoreHarness, task_id: str = "a") -> tuple[list[int], int, int]:
    """The sequences of the entries kept, and the two ends as a reader is told of them."""
    record = await harness.store.get(key(task_id))
    assert record is not None
    latest = await harness.store.events(key(task_id), record.last_sequence, 10)
    page = await harness.store.events(key(task_id), latest.earliest - 1, 10)
    return [event.sequence for event in page.events], page.earliest, page.latest


async def gap(harness: StoreHarness, after: int) -> dict[str, str]:
    """What a reader is told whose cursor is not within what is kept."""
    with pytest.raises(DomainError) as refused:
        await harness.store.events(key("a"), after, 10)
    assert refused.value.reason is Reason.EVENT_GAP
    return dict(refused.value.details)


class JournalBoundCases:
    """What is kept of a journal, and what a reader is told of the rest."""

    async def held(self, harness: StoreHarness, lease_ms: int = LEASE_MS) -> tuple[Scene, Holder]:
        """A task with three entries in its journal."""
        scene = Scene(harness.store)
        await scene.create("a")
        return scene, await scene.claim("a", lease_ms=lease_ms)

    async def test_data_beyond_the_bound_goes(self, store_harness: StoreHarness) -> None:
        scene, holder = await self.held(store_harness)
        for number in range(2):
            await scene.append("a", holder, f"e{number}", DATA)
        # The service's own three entries have 181 bytes.
        assert await kept(store_harness) == ([1, 2, 3, 4, 5], 1, 5)
        await scene.append("a", holder, "e2", DATA)
        assert await kept(store_harness) == ([5, 6], 5, 6)
        assert await gap(store_harness, 3) == {"earliest": "5", "latest": "6"}

    async def test_bytes_are_those_of_the_text(self, store_harness: StoreHarness) -> None:
        scene, holder = await self.held(store_harness)
        # 249 characters of 4 bytes and two quotes are 998 bytes, and with these two they fill the bound.
        await scene.append("a", holder, "e1", '"' + "\U0001f600" * 249 + '"')
        await scene.append("a", holder, "e2", "12")
        assert await kept(store_harness) == ([4, 5], 4, 5)
        await scene.append("a", holder, "e3", "1")
        assert await kept(store_harness) == ([5, 6], 5, 6)

    async def test_the_newest_entry_is_kept_whatever_its_size(self, store_harness: StoreHarness) -> None:
        scene, holder = await self.held(store_harness)
        await scene.append("a", holder, "large", '"' + "x" * 5_000 + '"')
        assert await kept(store_harness) == ([4], 4, 4)
        await scene.append("a", holder, "small")
        assert await kept(store_harness) == ([5], 5, 5)
        assert await scene.append("a", holder, "small") == 5

    async def test_old_entries_go_with_the_next(self, store_harness: StoreHarness) -> None:
        scene, holder = await self.held(store_harness, lease_ms=HOUR_MS)
        await store_harness.advance(HOUR_MS - 1)
        await scene.append("a", holder, "e1")
        assert await kept(store_harness) == ([1, 2, 3, 4], 1, 4)
        await store_harness.advance(1)
        await scene.run("a", cancel, "")
        sequences, earliest, latest = await kept(store_harness)
        assert (sequences[0], earliest, sequences[-1]) == (4, 4, latest)
        assert (await gap(store_harness, 0))["earliest"] == "4"

    async def test_old_entries_go_though_nothing_is_written(self, store_harness: StoreHarness) -> None:
        scene, holder = await self.held(store_harness, lease_ms=HOUR_MS)
        await scene.create("b")
        store = store_harness.store
        await store_harness.advance(HOUR_MS - 1)
        await scene.append("a", holder, "e1")
        assert await store.trim_events(10) == 0
        await store_harness.advance(1)
        assert await store.trim_events(3) == 3
        assert await store.trim_events(3) == 1
        assert await store.trim_events(3) == 0
        assert await kept(store_harness) == ([4], 4, 4)
        assert await kept(store_harness, "b") == ([], 2, 1)
        assert await gap(store_harness, 2) == {"earliest": "4", "latest": "4"}

    async def test_a_journal_goes_on_after_its_last_entry_went(self, store_harness: StoreHarness) -> None:
        scene, _ = await self.held(store_harness)
        await store_harness.advance(2 * HOUR_MS)
        assert await store_harness.store.trim_events(10) == 3
        assert await kept(store_harness) == ([], 4, 3)
        assert await gap(store_harness, 2) == {"earliest": "4", "latest": "3"}
        holder = await scene.claim("a")
        sequence = await scene.append("a", holder, "e1", DATA)
        assert await kept(store_harness) == (list(range(4, sequence + 1)), 4, sequence)

    async def test_no_journal_gets_a_hole(self, store_harness: StoreHarness) -> None:
        scene, _ = await self.held(store_harness)
        await store_harness.advance(HOUR_MS)
        for earliest in (2, 3, 4):
            assert await store_harness.store.trim_events(1) == 1
            assert await kept(store_harness) == (list(range(earliest, 4)), earliest, 3)
        await scene.create("b")
        assert await store_harness.store.trim_events(1) == 0

    async def test_what_was_purged_has_no_journal(self, store_harness: StoreHarness) -> None:
        scene, _ = await self.held(store_harness)
        await scene.create("b")
        await scene.run("b", cancel, "")
        await store_harness.advance(HOUR_MS)
        assert len(await store_harness.store.purge([key("b")], await store_harness.store.now_ms())) == 1
        assert await store_harness.store.trim_events(10) == 3


class EndedTaskCases:
    """Ended tasks may be purged by how they ended."""

    async def test_what_may_be_purged_is_asked_by_state(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("canceled", "completed", "failed", "older")
        await scene.run("older", cancel, "")
        await store_harness.advance(1)
        await scene.complete("completed", await scene.claim("completed"))
        await scene.run("failed", fail, await scene.claim("failed"), "why")
        await store_harness.advance(1)
        await scene.run("canceled", cancel, "")
        await store_harness.advance(1)
        store, now_ms = store_harness.store, await store_harness.store.now_ms()

        async def ended(*states: TaskState, limit: int = 10) -> list[str]:
            found = await store.purgeable(TENANT, now_ms, limit, frozenset(states))
            return [each.task_id for each in found]

        assert await ended(TaskState.CANCELED) == ["older", "canceled"]
        assert await ended(TaskState.FAILED) == ["failed"]
        assert await ended(TaskState.CANCELED, TaskState.COMPLETED) == ["older", "completed", "canceled"]
        assert await ended(TaskState.CANCELED, TaskState.COMPLETED, limit=2) == ["older", "completed"]
        assert await ended(TaskState.STOPPED) == []
        assert await ended() == []
        assert sorted(each.task_id for each in await store.purgeable(TENANT, now_ms, 10)) == [
            "canceled",
            "completed",
            "failed",
            "older",
        ]
