"""What an operator asks: how long work waits, and which sites waste windows."""
# ruff: noqa: S101

from relay_service.core.model import ChurnReport, Route
from relay_service.store.contract.scene import OTHER_SITE, SITE, Scene, StoreHarness, ids


class OldestQueuedCases:
    """The job that has been queued the longest, over all sites and lanes."""

    async def test_nothing_is_queued(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        assert await store.oldest_queued_ms() is None
        await Scene(store).claimed("a")
        assert await store.oldest_queued_ms() is None

    async def test_the_first_of_several_sites_and_owners(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        began_ms = await scene.store.now()
        for number, (site, owner) in enumerate([(OTHER_SITE, "bob"), (SITE, "bob"), (SITE, "alice")]):
            await scene.enqueue(f"job-{number}", site=site, owner=owner)
            await store_harness.advance(1_000)
        assert await scene.store.oldest_queued_ms() == began_ms
        assert await scene.store.cancel(OTHER_SITE, "job-0")
        assert await scene.store.oldest_queued_ms() == began_ms + 1_000
        assert ids(await scene.claim(owner="bob", routes=[(SITE, "bob")])) == ["job-1"]
        assert await scene.store.oldest_queued_ms() == began_ms + 2_000

    async def test_a_job_that_comes_back_counts_from_its_enqueue(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        began_ms = await scene.store.now()
        grant = await scene.claimed("early")
        await store_harness.advance(5_000)
        await scene.enqueue("late")
        assert await scene.store.oldest_queued_ms() == began_ms + 5_000
        await scene.release(grant)
        assert await scene.store.oldest_queued_ms() == began_ms

    async def test_a_repeated_enqueue_is_no_second_one(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        began_ms = await scene.store.now()
        await scene.enqueue("a")
        await store_harness.advance(1_000)
        await scene.enqueue("a")
        assert await scene.store.oldest_queued_ms() == began_ms

    async def test_time_passes_here_too(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        began_ms = await scene.store.now()
        await scene.enqueue("short", deadline_at_ms=began_ms + 10_000)
        await store_harness.advance(10_000)
        assert await scene.store.oldest_queued_ms() is None


class ChurnReportCases:
    """What was reported can be read for a day."""

    async def test_reports_are_kept_newest_first(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        assert list(await scene.store.churn_reports()) == []
        first_ms = await waste(scene, store_harness, "early")
        second_ms = await waste(scene, store_harness, "other", site=OTHER_SITE)
        assert list(await scene.store.churn_reports()) == [
            ChurnReport(Route(OTHER_SITE, "alice"), 6, 300_000, second_ms),
            ChurnReport(Route(SITE, "alice"), 6, 300_000, first_ms),
        ]

    async def test_a_route_is_reported_once_an_hour(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        first_ms = await waste(scene, store_harness, "early")
        await waste(scene, store_harness, "again")
        assert [report.at_ms for report in await scene.store.churn_reports()] == [first_ms]
        await store_harness.advance(3_600_000)
        last_ms = await waste(scene, store_harness, "late")
        assert [report.at_ms for report in await scene.store.churn_reports()] == [last_ms, first_ms]

    async def test_a_report_is_forgotten_after_a_day(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        at_ms = await waste(scene, store_harness, "early")
        await store_harness.advance(at_ms + 86_399_999 - await scene.store.now())
        assert len(await scene.store.churn_reports()) == 1
        await store_harness.advance(1)
        assert list(await scene.store.churn_reports()) == []


async def waste(scene: Scene, harness: StoreHarness, name: str, site: str = SITE) -> int:
    """Lets six windows lapse; when the last of them did."""
    await scene.enqueue(f"{name}-1", f"{name}-2", site=site)
    for _ in range(3):
        assert len(await scene.claim(routes=[(site, "alice")])) == 2
        await harness.advance(10_000)
    await scene.store.sweep()
    return await scene.store.now()
