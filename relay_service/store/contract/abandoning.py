"""Sites that abandon their jobs: stickiness, junk payloads, churn."""
# ruff: noqa: S101

from relay_service.core.model import Change, ChurnReport, GrantedJob, JobState, ReleaseReason, Route
from relay_service.store.contract.scene import SITE, Scene, StoreHarness, ids


class StickinessCases:
    """A site that abandons a job learns of one device, and the job still ends."""

    async def _abandoned(self, scene: Scene, harness: StoreHarness) -> None:
        await scene.claimed("a")
        await harness.advance(10_000)
        assert (await scene.job("a")).reoffer_to == "runner_1"

    async def _again(self, scene: Scene) -> GrantedJob:
        grants = await scene.claim("runner_1")
        assert ids(grants) == ["a"]
        return grants[0]

    async def test_difference_5_ends_when_the_payload_is_taken(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await self._abandoned(scene, store_harness)
        grant = await self._again(scene)
        await scene.seal(grant)
        assert (await scene.job("a")).reoffer_to == "runner_1"
        await scene.take(grant)
        job = await scene.job("a")
        assert (job.reoffer_to, job.sticky_until_ms) == (None, None)
        await scene.release(grant)
        assert ids(await scene.claim("runner_2")) == ["a"]

    async def test_difference_5_an_absent_device_counts_as_a_window(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        await self._abandoned(scene, store_harness)
        await store_harness.advance(9_000)
        assert (await scene.job("a")).seal_attempts == 1
        await store_harness.advance(1_000)
        job = await scene.job("a")
        assert (job.state, job.seal_attempts, job.reoffer_to) == (JobState.QUEUED, 2, "runner_1")
        await store_harness.advance(10_000)
        assert await scene.state("a") == "gone"

    async def test_difference_5_a_refusal_by_that_device_counts(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await self._abandoned(scene, store_harness)
        await scene.release(await self._again(scene), ReleaseReason.REFUSED)
        job = await scene.job("a")
        assert (job.state, job.seal_attempts, job.refused_by) == (JobState.QUEUED, 2, ("runner_1",))
        assert ids(await scene.claim("runner_1")) == []
        assert ids(await scene.claim("runner_2")) == []
        await store_harness.advance(10_000)
        assert await scene.state("a") == "gone"

    async def test_difference_5_a_second_refusal_evicts(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await self._abandoned(scene, store_harness)
        await self._again(scene)
        await store_harness.advance(10_000)
        await scene.release(await self._again(scene), ReleaseReason.REFUSED)
        assert await scene.state("a") == "gone"

    async def test_difference_5_a_plain_release_by_it_does_not_count(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        await self._abandoned(scene, store_harness)
        await scene.release(await self._again(scene), ReleaseReason.SHUTDOWN)
        job = await scene.job("a")
        assert (job.seal_attempts, job.reoffer_to) == (1, "runner_1")
        await store_harness.advance(9_000)
        assert ids(await scene.claim("runner_1")) == ["a"]


class JunkPayloadCases:
    """A payload that the device cannot open counts as none at all."""

    async def test_difference_8_a_bad_envelope_is_a_wasted_window(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.running("a")
        assert await scene.release(grant, ReleaseReason.BAD_ENVELOPE) == ["a"]
        job = await scene.job("a")
        assert (job.state, job.seal_attempts, job.reoffer_to) == (JobState.QUEUED, 1, "runner_1")
        assert (job.payload, job.refused_by) == (None, ())
        assert ids(await scene.claim("runner_2")) == []

    async def test_difference_8_the_third_one_evicts(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.running("a")
        for attempts in (1, 2):
            await scene.release(grant, ReleaseReason.BAD_ENVELOPE)
            assert (await scene.job("a")).seal_attempts == attempts
            grant = (await scene.claim())[0]
            await scene.seal(grant)
            await scene.take(grant)
        await scene.release(grant, ReleaseReason.BAD_ENVELOPE)
        assert await scene.state("a") == "gone"

    async def test_difference_8_junk_and_silence_add_up(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.claimed("a")
        await store_harness.advance(10_000)
        grant = (await scene.claim())[0]
        await scene.seal(grant)
        assert (await scene.job("a")).seal_attempts == 0
        await scene.release(grant, ReleaseReason.BAD_ENVELOPE)
        assert (await scene.job("a")).seal_attempts == 2

    async def test_difference_8_a_good_payload_starts_the_count_again(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        await scene.claimed("a")
        await store_harness.advance(10_000)
        grant = (await scene.claim())[0]
        await scene.seal(grant)
        await scene.take(grant)
        await scene.release(grant, ReleaseReason.SHUTDOWN)
        grant = (await scene.claim())[0]
        await scene.seal(grant)
        await scene.release(grant, ReleaseReason.BAD_ENVELOPE)
        assert (await scene.job("a")).seal_attempts == 1

    async def test_difference_8_without_a_payload_it_is_a_plain_release(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        await scene.release(grant, ReleaseReason.BAD_ENVELOPE)
        job = await scene.job("a")
        assert (job.seal_attempts, job.reoffer_to) == (0, None)
        assert ids(await scene.claim("runner_2")) == ["a"]


class ChurnCases:
    """The operator hears of a site that wastes windows."""

    async def test_gap_churn_is_reported_on_the_sixth_lapse(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        scene.watch()
        await scene.enqueue("a", "b")
        for _ in range(2):
            assert len(await scene.claim()) == 2
            await store_harness.advance(10_000)
        assert await self._reports(scene, store_harness) == []
        assert len(await scene.claim()) == 2
        await store_harness.advance(10_000)
        now_ms = await scene.store.now()
        expected = ChurnReport(Route(SITE, "alice"), 6, 300_000, now_ms)
        assert await self._reports(scene, store_harness) == [expected]

    async def test_gap_churn_is_quiet_for_an_hour(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        scene.watch()
        await self._waste(scene, store_harness, "early")
        assert len(await self._reports(scene, store_harness)) == 1
        await self._waste(scene, store_harness, "again")
        assert len(await self._reports(scene, store_harness)) == 1
        await store_harness.advance(3_600_000)
        await self._waste(scene, store_harness, "late")
        assert len(await self._reports(scene, store_harness)) == 2

    async def test_gap_lapses_apart_are_no_churn(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        scene.watch()
        for number in range(8):
            await scene.claimed(f"job-{number}")
            await store_harness.advance(70_000)
            await scene.store.cancel(SITE, f"job-{number}")
        assert await self._reports(scene, store_harness) == []

    async def test_difference_8_junk_is_churn_too(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        scene.watch()
        for number in range(6):
            grant = await scene.ready(f"job-{number}")
            await scene.release(grant, ReleaseReason.BAD_ENVELOPE)
            await scene.store.cancel(SITE, f"job-{number}")
        now_ms = await scene.store.now()
        expected = ChurnReport(Route(SITE, "alice"), 6, 300_000, now_ms)
        assert await self._reports(scene, store_harness) == [expected]

    async def _waste(self, scene: Scene, harness: StoreHarness, name: str) -> None:
        await scene.enqueue(f"{name}-1", f"{name}-2")
        for _ in range(3):
            assert len(await scene.claim()) == 2
            await harness.advance(10_000)
        await scene.store.sweep()

    async def _reports(self, scene: Scene, harness: StoreHarness) -> list[Change]:
        await scene.store.sweep()
        await harness.delivered()
        return [change for change in scene.changes if isinstance(change, ChurnReport)]
