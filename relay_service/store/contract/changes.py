"""What listeners hear, so that others need not ask."""
# ruff: noqa: S101

from relay_service.core.model import (
    Audience,
    LeaseChanged,
    LeaseEnd,
    NoticeAdded,
    ReleaseReason,
    Route,
    WorkAvailable,
)
from relay_service.store.contract.scene import SITE, Scene, StoreHarness, reference

OPEN = WorkAvailable(Route(SITE, "alice"), "llm.generate", Audience.PRIVATE, None)
RESERVED = WorkAvailable(Route(SITE, "alice"), "llm.generate", Audience.PRIVATE, "runner_1")


async def _settled(scene: Scene, harness: StoreHarness) -> None:
    await scene.store.sweep()
    await harness.delivered()


async def openings(scene: Scene, harness: StoreHarness) -> list[WorkAvailable]:
    """What became claimable since the last look."""
    await _settled(scene, harness)
    found = [change for change in scene.changes if isinstance(change, WorkAvailable)]
    scene.changes.clear()
    return found


async def lease_words(scene: Scene, harness: StoreHarness) -> list[LeaseChanged]:
    """What holders were told since the last look."""
    await _settled(scene, harness)
    found = [change for change in scene.changes if isinstance(change, LeaseChanged)]
    scene.changes.clear()
    return found


class OpeningCases:
    """Work is announced when it becomes claimable, to those who can claim it."""

    async def test_a_new_job(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        scene.watch()
        await scene.enqueue("a", audience=Audience.TEAM, kind="llm.chat")
        expected = WorkAvailable(Route("site_store", "alice"), "llm.chat", Audience.TEAM, None)
        assert await openings(scene, store_harness) == [expected]

    async def test_a_repeated_enqueue_is_no_news(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a")
        scene.watch()
        await scene.enqueue("a")
        assert await openings(scene, store_harness) == []

    async def test_a_requeued_job(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        scene.watch()
        await scene.release(grant)
        assert await openings(scene, store_harness) == [OPEN]

    async def test_a_lapsed_lease(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.running("a", lease_ms=5_000)
        scene.watch()
        await store_harness.advance(5_000)
        assert await openings(scene, store_harness) == [OPEN]

    async def test_a_lapsed_window_is_for_the_one_runner(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.claimed("a")
        scene.watch()
        await store_harness.advance(10_000)
        assert await openings(scene, store_harness) == [RESERVED]

    async def test_a_refused_reservation_is_for_nobody(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.claimed("a")
        await store_harness.advance(10_000)
        (grant,) = await scene.claim()
        scene.watch()
        await scene.release(grant, ReleaseReason.REFUSED)
        assert await openings(scene, store_harness) == []

    async def test_the_end_of_a_retry_after(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        await scene.release(grant, retry_after_ms=30_000)
        scene.watch()
        await store_harness.advance(29_000)
        assert await openings(scene, store_harness) == []
        await store_harness.advance(1_000)
        assert await openings(scene, store_harness) == [RESERVED]

    async def test_a_freed_slot(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", "b", "c", "d", "e")
        first, second = await scene.claim()
        scene.watch()
        await scene.seal(first)
        assert await openings(scene, store_harness) == [OPEN]
        await scene.complete(second)
        assert await openings(scene, store_harness) == []
        third, fourth = await scene.claim()
        await scene.release(third)
        assert await openings(scene, store_harness) == [OPEN]
        await scene.claim()
        await scene.complete(fourth)
        assert await openings(scene, store_harness) == [OPEN]

    async def test_a_slot_freed_by_a_cancelled_job(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", "b", "c")
        first, _ = await scene.claim()
        await store_harness.store.cancel(SITE, "a")
        scene.watch()
        await scene.release(first)
        assert await openings(scene, store_harness) == [OPEN]

    async def test_no_opening_while_the_route_is_full(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", "b")
        await scene.claim()
        scene.watch()
        await scene.enqueue("c")
        assert await openings(scene, store_harness) == []

    async def test_nothing_is_heard_after_listening_ended(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        stop = store_harness.store.listen(scene.changes.append)
        stop()
        stop()
        await scene.enqueue("a")
        assert await openings(scene, store_harness) == []


class LeaseWordCases:
    """Holders are told what happened to their leases without their doing."""

    async def test_payload_ready(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        scene.watch()
        await scene.seal(grant)
        assert await lease_words(scene, store_harness) == [
            LeaseChanged("runner_1", reference(grant), "site_store", payload_ready=True)
        ]

    async def test_cancel_requested_once(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        scene.watch()
        await store_harness.store.cancel(SITE, "a")
        await store_harness.store.cancel(SITE, "a")
        assert await lease_words(scene, store_harness) == [
            LeaseChanged("runner_1", reference(grant), "site_store", cancel_requested=True)
        ]

    async def test_lost_by_time(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        now_ms = await store_harness.store.now()
        window = await scene.claimed("window")
        await scene.enqueue("deadline", deadline_at_ms=now_ms + 11_000)
        (deadline,) = await scene.claim()
        await scene.seal(deadline)
        expired = await scene.ready("expired", lease_ms=12_000)
        scene.watch()
        await store_harness.advance(13_000)
        words = await lease_words(scene, store_harness)
        assert [(word.lease, word.end) for word in words] == [
            (reference(window), LeaseEnd.WINDOW_LAPSED),
            (reference(deadline), LeaseEnd.DEADLINE_PASSED),
            (reference(expired), LeaseEnd.EXPIRED),
        ]

    async def test_lost_by_eviction(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        for _ in range(2):
            await store_harness.advance(10_000)
            (grant,) = await scene.claim()
        scene.watch()
        await store_harness.advance(10_000)
        assert await lease_words(scene, store_harness) == [
            LeaseChanged("runner_1", reference(grant), "site_store", end=LeaseEnd.WINDOW_LAPSED)
        ]

    async def test_lost_while_cancelled(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        await store_harness.store.cancel(SITE, "a")
        scene.watch()
        await store_harness.advance(10_000)
        assert await lease_words(scene, store_harness) == [
            LeaseChanged("runner_1", reference(grant), "site_store", end=LeaseEnd.CANCELLED)
        ]

    async def test_what_it_did_itself_is_no_news(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        scene.watch()
        grant = await scene.claimed("a")
        await scene.release(grant)
        (grant,) = await scene.claim()
        await scene.renew(grant)
        await scene.complete(grant)
        assert await lease_words(scene, store_harness) == []


class NoticeWordCases:
    """A site with a session hears of each new row."""

    async def test_each_new_row(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        scene.watch()
        grant = await scene.claimed("a")
        assert await self._heard(scene, store_harness) == [NoticeAdded("site_store")]
        await scene.seal(grant)
        assert await self._heard(scene, store_harness) == []
        await scene.release(grant)
        assert await self._heard(scene, store_harness) == [NoticeAdded("site_store")]
        (grant,) = await scene.claim()
        await scene.complete(grant)
        assert await self._heard(scene, store_harness) == [NoticeAdded("site_store")] * 2
        await store_harness.store.acknowledge(SITE, ["a"])
        assert await self._heard(scene, store_harness) == []

    async def _heard(self, scene: Scene, harness: StoreHarness) -> list[NoticeAdded]:
        await _settled(scene, harness)
        found = [change for change in scene.changes if isinstance(change, NoticeAdded)]
        scene.changes.clear()
        return found
