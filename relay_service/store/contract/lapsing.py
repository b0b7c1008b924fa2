"""What time does: windows, leases, deadlines, stickiness, junk payloads."""
# ruff: noqa: S101

from relay_service.core.model import (
    Change,
    ChurnReport,
    GrantedJob,
    JobState,
    Refusal,
    ReleaseReason,
    Route,
    VerdictState,
)
from relay_service.store.base import Completed
from relay_service.store.contract.scene import SITE, Scene, StoreHarness, ids


class LapsingCases:
    """Clocks count in every operation, and what they end is ended for everybody."""

    async def test_difference_1_no_sweep_is_needed(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.running("a", lease_ms=5_000)
        await store_harness.advance(5_000)
        assert await scene.complete(grant) is Refusal.NOT_FOUND
        assert await scene.state("a") == "queued"

    async def test_difference_1_a_late_seal_is_refused(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        await store_harness.advance(10_000)
        late = await scene.seal(grant)
        assert getattr(late, "refusal", None) is Refusal.STALE_LEASE
        assert (await scene.job("a")).state is JobState.QUEUED

    async def test_gap_window_lapses_at_ten_seconds(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.claimed("a")
        await store_harness.advance(9_000)
        assert await scene.state("a") == "awaiting-payload"
        await store_harness.advance(1_000)
        job = await scene.job("a")
        assert (job.state, job.seal_attempts, job.reoffer_to) == (JobState.QUEUED, 1, "runner_1")
        assert (job.claim, job.awaiting_until_ms) == (None, None)

    async def test_gap_eviction_on_the_third_window(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.claimed("a")
        for attempts in (1, 2):
            await store_harness.advance(10_000)
            assert (await scene.job("a")).seal_attempts == attempts
            assert ids(await scene.claim()) == ["a"]
        await store_harness.advance(10_000)
        assert await scene.state("a") == "gone"
        fresh = await scene.enqueue("a")
        assert (fresh.state, fresh.seal_attempts, fresh.reoffer_to) == (JobState.QUEUED, 0, None)

    async def test_gap_an_unsealed_lease_is_bounded_by_the_window_alone(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        await scene.claimed("a", lease_ms=1_000)
        await store_harness.advance(5_000)
        assert await scene.state("a") == "awaiting-payload"

    async def test_gap_renewal_does_not_move_the_window(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        await store_harness.advance(9_000)
        await scene.renew(grant)
        await store_harness.advance(1_000)
        assert await scene.state("a") == "queued"

    async def test_gap_an_expired_lease_requeues_and_drops_the_payload(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.running("a", lease_ms=60_000)
        await store_harness.advance(59_000)
        assert await scene.state("a") == "running"
        await store_harness.advance(1_000)
        job = await scene.job("a")
        assert (job.state, job.payload, job.claim, job.seal_attempts) == (JobState.QUEUED, None, None, 0)
        second = (await scene.claim("runner_2"))[0]
        assert second.lease_id != grant.lease_id
        assert await scene.take(second, "runner_2") is Refusal.NOT_READY

    async def test_gap_a_ready_job_is_bounded_by_its_lease(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.ready("a", lease_ms=20_000)
        await store_harness.advance(19_000)
        assert await scene.state("a") == "ready"
        await store_harness.advance(1_000)
        assert await scene.state("a") == "queued"

    async def test_gap_renewal_keeps_the_lease(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.running("a", lease_ms=20_000)
        for _ in range(5):
            await store_harness.advance(15_000)
            (verdict,) = await scene.renew(grant, lease_ms=20_000)
            assert verdict.state is VerdictState.ACTIVE
        assert await scene.state("a") == "running"

    async def test_gap_the_first_holder_after_a_sweep(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.running("a", lease_ms=5_000)
        await store_harness.advance(5_000)
        swept = await store_harness.store.sweep()
        assert [key.job_id for key in swept.requeued] == ["a"]
        assert list(swept.ended) == []
        (verdict,) = await scene.renew(grant)
        assert verdict.state is VerdictState.LOST
        assert await scene.take(grant) is Refusal.NOT_FOUND
        assert await scene.complete(grant) is Refusal.NOT_FOUND

    async def test_gap_the_first_holder_after_another_claimed(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.running("a", lease_ms=5_000)
        await store_harness.advance(5_000)
        second = (await scene.claim("runner_2"))[0]
        assert await scene.complete(grant) is Refusal.NOT_FOUND
        assert await scene.complete(second, "runner_2") == Completed(accepted=True)

    async def test_gap_the_deadline_ends_a_running_job(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        now_ms = await store_harness.store.now()
        await scene.enqueue("a", deadline_at_ms=now_ms + 20_000)
        grant = (await scene.claim())[0]
        await scene.seal(grant)
        await scene.take(grant)
        await store_harness.advance(20_000)
        assert await scene.state("a") == "gone"
        assert await scene.complete(grant) is Refusal.NOT_FOUND

    async def test_next_due_is_the_nearest_clock(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        assert await store.next_due_ms() is None
        before = await store.now()
        await scene.enqueue("a", deadline_at_ms=before + 500_000)
        assert await store.next_due_ms() == before + 500_000
        grant = (await scene.claim())[0]
        due = await store.next_due_ms()
        assert due == grant.awaiting_until_ms
        await scene.seal(grant)
        assert await store.next_due_ms() == grant.lease_expires_at_ms
        (verdict,) = await scene.renew(grant, lease_ms=90_000)
        assert await store.next_due_ms() == verdict.expires_at_ms

    async def test_gap_not_before_ends_on_time(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        await scene.release(grant, retry_after_ms=30_000)
        await store_harness.advance(29_000)
        assert ids(await scene.claim()) == []
        await store_harness.advance(1_000)
        assert ids(await scene.claim()) == ["a"]


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
        assert await self._reports(scene, store_harness) == [ChurnReport(Route(SITE, "alice"), 6, 300_000)]

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
        assert await self._reports(scene, store_harness) == [ChurnReport(Route(SITE, "alice"), 6, 300_000)]

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
