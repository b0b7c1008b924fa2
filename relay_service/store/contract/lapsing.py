"""What time does: windows, leases, deadlines, stickiness, junk payloads."""
# ruff: noqa: S101

from relay_service.core.model import (
    JobState,
    Refusal,
    VerdictState,
)
from relay_service.store.base import Completed
from relay_service.store.contract.scene import Scene, StoreHarness, ids


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
