"""Lists, journals, approvals, retention and nonces."""
# ruff: noqa: S101

import pytest

from durable_service.core.actions import mark_unknown
from durable_service.core.artifacts import ArtifactContent, put_artifact
from durable_service.core.availability import Queue
from durable_service.core.binding import blob_key
from durable_service.core.definition import Driver
from durable_service.core.errors import DomainError, Reason
from durable_service.core.leases import renew
from durable_service.core.model import Holder
from durable_service.core.outcomes import cancel
from durable_service.core.reconciliation import Evidence, Finding, reconcile
from durable_service.core.states import TaskState
from durable_service.store.base import (
    ApprovalMark,
    Backlog,
    PageMark,
    StateCount,
    TaskQuery,
    UnknownMark,
)
from durable_service.store.contract.scene import TENANT, Scene, StoreHarness, creation, key, refusal

DIGEST = "sha256:" + "0" * 64


class ListCases:
    """Lists by filter and by page."""

    async def listed(self, harness: StoreHarness, **filters: object) -> list[str]:
        query = TaskQuery(TENANT, **filters)  # type: ignore[arg-type]
        return [record.key.task_id for record in await harness.store.list_tasks(query, None, 100)]

    async def test_pages_are_newest_first(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        for names in (("a", "c"), ("b",), ("d", "e")):
            await scene.create(*names)
            await store_harness.advance(1)
        await scene.create("f", tenant="elsewhere")
        seen: list[str] = []
        mark: PageMark | None = None
        while page := await store_harness.store.list_tasks(TaskQuery(TENANT), mark, 2):
            seen += [record.key.task_id for record in page]
            mark = PageMark(page[-1].created_at_ms, page[-1].key.task_id)
        assert seen == ["e", "d", "b", "c", "a"]

    async def test_a_page_does_not_shift(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a", "b", "c")
        (first,) = await store_harness.store.list_tasks(TaskQuery(TENANT), None, 1)
        await store_harness.advance(1)
        await scene.create("z")
        mark = PageMark(first.created_at_ms, first.key.task_id)
        rest = await store_harness.store.list_tasks(TaskQuery(TENANT), mark, 10)
        assert [record.key.task_id for record in rest] == ["b", "a"]

    async def test_filters(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        start = await store_harness.store.now_ms()
        await scene.create("plain")
        await scene.create("alices", actor="alice")
        await scene.create("session", session="s2")
        await scene.create("tree", root="r2")
        await scene.create("second", driver=Driver("fixture", 2))
        await scene.create("foreign", driver=Driver("other", 2))
        await store_harness.advance(10)
        await scene.create("young", driver=None)
        await scene.run("plain", cancel, "")
        assert await self.listed(store_harness, actor_id="alice") == ["alices"]
        assert await self.listed(store_harness, session_id="s2") == ["session"]
        assert await self.listed(store_harness, root_run_id="r2") == ["tree"]
        assert await self.listed(store_harness, driver_id="fixture", driver_version=2) == ["second"]
        assert await self.listed(store_harness, driver_id="other") == ["foreign"]
        assert len(await self.listed(store_harness, driver_id="fixture")) == 5
        assert await self.listed(store_harness, created_from_ms=start + 10) == ["young"]
        assert len(await self.listed(store_harness, created_before_ms=start + 10)) == 6
        assert await self.listed(store_harness, states=frozenset({TaskState.CANCELED})) == ["plain"]
        assert sorted(await self.listed(store_harness, updated_from_ms=start + 10)) == ["plain", "young"]
        assert len(await self.listed(store_harness, updated_before_ms=start + 10)) == 5
        both = frozenset({TaskState.CANCELED, TaskState.QUEUED})
        assert len(await self.listed(store_harness, states=both)) == 7
        assert await self.listed(store_harness, actor_id="alice", session_id="s2") == []

    async def test_what_needs_recovery_is_listed(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a", "b")
        holder = await scene.claim("a")
        await scene.prepare("a", holder, "send")
        await scene.dispatch("a", holder, "send")
        assert await self.listed(store_harness, queue=Queue.RECOVERY) == ["a"]
        assert await self.listed(store_harness, queue=Queue.WORK) == ["b"]

    async def test_counts(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a", "b", "c")
        await scene.create("d", tenant="elsewhere")
        await scene.claim("a")
        assert list(await store_harness.store.counts()) == [
            StateCount("elsewhere", TaskState.QUEUED, 1),
            StateCount(TENANT, TaskState.QUEUED, 2),
            StateCount(TENANT, TaskState.RUNNING, 1),
        ]


class JournalCases:
    """Journals are bounded, and honest about it."""

    async def test_pages_of_a_journal(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        await scene.create("a")
        first = await store.events(key("a"), 0, 10)
        assert [event.type for event in first.events] == ["task.created"]
        assert (first.earliest, first.latest) == (1, 1)
        holder = await scene.claim("a")
        assert await scene.append("a", holder, "e1") == 4
        page = await store.events(key("a"), 1, 2)
        assert [event.sequence for event in page.events] == [2, 3]
        assert [event.event_id for event in (await store.events(key("a"), 3, 2)).events] == ["e1"]
        assert (await store.events(key("a"), 4, 2)).events == ()

    async def test_the_oldest_entries_go(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a")
        holder = await scene.claim("a")
        for number in range(5):
            await scene.append("a", holder, f"e{number}")
        page = await store_harness.store.events(key("a"), 2, 10)
        assert [event.sequence for event in page.events] == [3, 4, 5, 6, 7, 8]
        assert (page.earliest, page.latest) == (3, 8)
        for cursor in (0, 1, 9):
            with pytest.raises(DomainError) as gap:
                await store_harness.store.events(key("a"), cursor, 10)
            assert gap.value.reason is Reason.EVENT_GAP
            assert gap.value.details == {"earliest": "3", "latest": "8"}

    async def test_an_entry_is_appended_once(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a")
        holder = await scene.claim("a")
        assert [await scene.append("a", holder, name) for name in ("e1", "e2", "e1", "e2")] == [4, 5, 4, 5]
        assert await refusal(scene.append("a", holder, "e1", data="2")) is Reason.REQUEST_ID_REUSED
        await scene.release("a", holder)
        assert await refusal(scene.append("a", holder, "e3")) is Reason.LEASE_LOST

    async def test_the_journal_of_no_task(self, store_harness: StoreHarness) -> None:
        assert await refusal(store_harness.store.events(key("a"), 0, 10)) is Reason.TASK_NOT_FOUND


class ApprovalCases:
    """Approvals that wait."""

    async def test_they_are_listed_for_their_actor(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        await scene.create("a", "b")
        for name, approver in (("a", "ann"), ("b", "ben")):
            holder = await scene.claim(name)
            await scene.prepare(name, holder, "send", approver=approver)
            await store_harness.advance(1)
        (waiting,) = await store.pending_approvals(TENANT, "ann", None, 10)
        assert (waiting.key, waiting.approval.id, waiting.action.id) == (key("a"), "a-send", "send")
        everyone = await store.pending_approvals(TENANT, None, None, 10)
        assert [item.approval.id for item in everyone] == ["a-send", "b-send"]
        mark = ApprovalMark(waiting.approval.expires_at_ms, "a-send")
        rest = await store.pending_approvals(TENANT, None, mark, 10)
        assert [item.approval.id for item in rest] == ["b-send"]
        assert await store.pending_approvals("elsewhere", None, None, 10) == []
        await scene.decide("a", "a-send", "ann", approved=False)
        assert await store.pending_approvals(TENANT, "ann", None, 10) == []
        decided = await store.task_of_approval(TENANT, "a-send")
        assert decided == await store.get(key("a"))
        assert await store.task_of_approval("elsewhere", "a-send") is None
        assert await store.task_of_approval(TENANT, "missing") is None

    async def test_what_cannot_be_decided_is_not_listed(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a", "b")
        for name in ("a", "b"):
            holder = await scene.claim(name)
            await scene.prepare(name, holder, "send", approver="ann")
        await scene.run("a", cancel, "")
        waiting = await store_harness.store.pending_approvals(TENANT, "ann", None, 10)
        assert [item.approval.id for item in waiting] == ["b-send"]
        await store_harness.advance(60_000)
        assert await store_harness.store.pending_approvals(TENANT, "ann", None, 10) == []


class RetentionCases:
    """What is purged, and what stays."""

    async def test_only_ended_tasks_are_purged(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        await scene.create("done", "running", "queued")
        await scene.create("done", tenant="elsewhere")
        content = ArtifactContent("out", DIGEST, 1, "text/plain", 10)
        holder = await scene.claim("done")
        await scene.run("done", put_artifact, holder, content)
        await scene.complete("done", holder)
        await scene.claim("running")
        changes = scene.watch()
        stored = blob_key(key("done"), "out", DIGEST)
        assert await store.referenced([stored, "f" * 64]) == {stored}
        now_ms = await store.now_ms()
        assert await store.purgeable(TENANT, now_ms, 10) == []
        assert await store.purge([key("done")], now_ms) == []
        await store_harness.advance(1)
        assert await store.purgeable(TENANT, now_ms + 1, 10) == [key("done")]
        named = [key(name) for name in ("done", "running", "queued", "missing")]
        (purged,) = await store.purge(named, now_ms + 1)
        assert (purged.key, purged.blob_keys) == (key("done"), (stored,))
        assert await store.get(key("done")) is None
        assert await store.referenced([stored]) == frozenset()
        assert [change.after for change in changes] == [None]
        assert await refusal(store.create(creation("done"))) is Reason.TASK_PURGED
        assert await refusal(store.events(key("done"), 0, 1)) is Reason.TASK_NOT_FOUND
        assert await store.purgeable(TENANT, now_ms + 1, 10) == []
        assert await store.purge(named, now_ms + 1) == []

    async def test_the_oldest_are_purged_first(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a", "b", "c")
        for name in ("b", "a", "c"):
            await scene.run(name, cancel, "")
            await store_harness.advance(1)
        now_ms = await store_harness.store.now_ms()
        assert await store_harness.store.purgeable(TENANT, now_ms, 2) == [key("b"), key("a")]


class OverviewCases:
    """Changes in order, held leases, unknown effects and what waits."""

    async def changed(self, harness: StoreHarness, after: int, limit: int = 10) -> list[tuple[int, str]]:
        page = await harness.store.changes(TENANT, after, limit)
        return [(position, record.key.task_id) for position, record in page.records]

    async def test_changes_are_told_in_order(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        nothing = await store_harness.store.changes(TENANT, 0, 10)
        assert nothing.records == ()
        await scene.create("a", "b")
        await scene.create("x", tenant="elsewhere")
        (first, name), (second, other) = await self.changed(store_harness, 0)
        assert (name, other) == ("a", "b")
        assert nothing.latest < first < second
        assert await self.changed(store_harness, nothing.latest) == [(first, "a"), (second, "b")]
        holder = await scene.claim("a")
        unchanged, (last, name) = await self.changed(store_harness, 0)
        assert unchanged == (second, "b")
        assert (last > second, name) == (True, "a")
        assert await self.changed(store_harness, 0, limit=1) == [(second, "b")]
        assert await self.changed(store_harness, second) == [(last, "a")]
        await scene.run("a", renew, holder, 1_000)
        assert await self.changed(store_harness, last) == []
        page = await store_harness.store.changes(TENANT, second, 10)
        assert page.records == ((last, await scene.record("a")),)
        assert page.latest >= last

    async def test_whoever_begins_at_the_latest_position_misses_nothing(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a")
        begin = (await store_harness.store.changes(TENANT, 0, 0)).latest
        assert await self.changed(store_harness, begin) == []
        await scene.create("b")
        ((position, name),) = await self.changed(store_harness, begin)
        assert (position > begin, name) == (True, "b")

    async def test_positions_outlive_what_they_belong_to(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        before = store_harness.store.incarnation
        await scene.create("a")
        ((first, _),) = await self.changed(store_harness, 0)
        if await store_harness.reopen():
            scene.store = store_harness.store
            await scene.create("b")
            assert store_harness.store.incarnation == before
            ((second, name),) = await self.changed(store_harness, first)
            assert (second > first, name) == (True, "b")

    async def test_what_a_worker_holds(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        await scene.create("a", "b", "c", "d")
        holder = await scene.claim("a", "worker-1")
        await scene.claim("b", "worker-2")
        await scene.claim("c", "worker-1", lease_ms=50)
        names = {record.key.task_id for record in await store.held(TENANT, "worker-1")}
        assert names == {"a", "c"}
        assert await store.held("elsewhere", "worker-1") == []
        await scene.release("a", holder)
        await store_harness.advance(50)
        assert await store.held(TENANT, "worker-1") == []

    async def test_what_a_claim_was_granted(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        await scene.create("a", "b", "c")
        await scene.claim("a", "worker-1")
        await scene.claim("b", "worker-1")
        await scene.claim("c", "worker-1", lease_ms=50)
        assert await store.granted(TENANT, "worker-1", "worker-1-claim-1") == key("a")
        assert await store.granted(TENANT, "worker-1", "worker-1-claim-2") == key("b")
        assert await store.granted(TENANT, "worker-1", "worker-1-claim-3") == key("c")
        assert await store.granted(TENANT, "worker-1", "worker-1-claim-4") is None
        assert await store.granted(TENANT, "worker-2", "worker-1-claim-1") is None
        assert await store.granted("elsewhere", "worker-1", "worker-1-claim-1") is None

    async def test_a_claim_is_known_when_its_lease_is_over(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        await scene.create("a", "b")
        await scene.release("a", await scene.claim("a", "worker-1"))
        await scene.claim("b", "worker-1", lease_ms=50)
        await store_harness.advance(50)
        holder = await scene.claim("a", "worker-2")
        assert await store.granted(TENANT, "worker-1", "worker-1-claim-1") == key("a")
        assert await store.granted(TENANT, "worker-1", "worker-1-claim-2") == key("b")
        await scene.complete("a", holder)
        (purged,) = await store.purge([key("a")], await store.now_ms() + 1)
        assert purged.key == key("a")
        assert await store.granted(TENANT, "worker-1", "worker-1-claim-1") is None
        assert await store.granted(TENANT, "worker-2", "worker-2-claim-3") is None
        assert await store.granted(TENANT, "worker-1", "worker-1-claim-2") == key("b")

    async def test_unknown_effects_wait_in_order(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        await scene.create("a", "b")
        for name in ("b", "a"):
            holder = await scene.claim(name)
            for action_id in ("two", "one"):
                await scene.prepare(name, holder, action_id)
                await scene.dispatch(name, holder, action_id)
                assert len(await store.unknown_actions(TENANT, None, 10)) == (0 if name == "b" else 2)
            for action_id in ("two", "one"):
                await scene.run(name, mark_unknown, holder, action_id)
            await store_harness.advance(1)
        found = await store.unknown_actions(TENANT, None, 10)
        assert [(item.record.key.task_id, item.action.id) for item in found] == [
            ("b", "one"),
            ("b", "two"),
            ("a", "one"),
            ("a", "two"),
        ]
        second = found[1]
        mark = UnknownMark(second.action.updated_at_ms, "b", "two")
        rest = await store.unknown_actions(TENANT, mark, 1)
        assert [(item.record.key.task_id, item.action.id) for item in rest] == [("a", "one")]
        evidence = Evidence(Finding.CONFIRMED, "proof", "result")
        bound = second.action.prepared_hash
        await scene.run("a", reconcile, Holder("worker-1", 1), "one", bound, evidence)
        assert len(await store.unknown_actions(TENANT, None, 10)) == 3
        assert await store.unknown_actions("elsewhere", None, 10) == []

    async def test_what_waits(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        assert await store.backlog(TENANT) == Backlog(0, None, 0, 0, None, 0, None)
        start = await store.now_ms()
        await scene.create("old")
        await store_harness.advance(10)
        await scene.create("young", "held")
        holder = await scene.claim("held")
        await scene.prepare("held", holder, "gated", approver="ann")
        await store_harness.advance(10)
        await scene.prepare("held", holder, "send")
        await scene.dispatch("held", holder, "send")
        await scene.run("held", mark_unknown, holder, "send")
        assert await store.backlog(TENANT) == Backlog(2, start, 1, 1, start + 20, 1, start + 10)
        assert await store.backlog("elsewhere") == Backlog(0, None, 0, 0, None, 0, None)


class NonceCases:
    """A nonce is taken once."""

    async def test_once_within_its_time(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        assert await store.use_nonce("caller", "n", 100)
        assert not await store.use_nonce("caller", "n", 100)
        assert await store.use_nonce("other", "n", 100)
        await store_harness.advance(99)
        assert not await store.use_nonce("caller", "n", 100)
        await store_harness.advance(1)
        assert await store.use_nonce("caller", "n", 100)


class RestartCases:
    """What a durable store keeps."""

    async def test_everything_is_there_again(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a", "b")
        holder = await scene.claim("a")
        await scene.prepare("a", holder, "send", approver="ann")
        await scene.append("a", holder, "e1")
        assert await scene.store.use_nonce("caller", "n", 100)
        before = await scene.record("a")
        now_ms = await scene.store.now_ms()
        if not await store_harness.reopen():
            assert not store_harness.store.capabilities.durable
            pytest.skip("this store keeps nothing over a restart")
        assert store_harness.store.capabilities.durable
        scene.store = store_harness.store
        assert await scene.record("a") == before
        assert await scene.store.now_ms() >= now_ms
        assert await scene.append("a", holder, "e1") == before.last_sequence
        assert not await scene.store.use_nonce("caller", "n", 100)
        assert len(await scene.store.pending_approvals(TENANT, "ann", None, 10)) == 1
        await scene.decide("a", "a-send", "ann")
        await scene.dispatch("a", holder, "send")
