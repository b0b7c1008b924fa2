"""Seals that come to the wrong grant, cancelled jobs, and verdicts on leases."""
# ruff: noqa: S101

from relay_service.core.model import (
    JobState,
    LeaseEnd,
    LeaseRef,
    Refusal,
    ReleaseReason,
    RoutedJob,
    VerdictState,
)
from relay_service.store.base import Completed, TooLate
from relay_service.store.contract.scene import (
    SITE,
    Scene,
    StoreHarness,
    device,
    envelope,
    ids,
    reference,
)


class SealingCases:
    """A payload is for one grant and one device."""

    async def test_difference_2_the_grant_that_it_was_sealed_to(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        sealed = await scene.seal(grant)
        assert isinstance(sealed, RoutedJob)
        assert (sealed.state, sealed.payload, sealed.awaiting_until_ms) == (JobState.READY, envelope(), None)

    async def test_difference_2_a_payload_for_an_earlier_grant(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        first = await scene.claimed("a")
        await scene.release(first)
        (second,) = await scene.claim("runner_2")
        await self._refused(await scene.seal(first), Refusal.STALE_LEASE, JobState.AWAITING_PAYLOAD)
        sealed = await scene.seal(second)
        assert isinstance(sealed, RoutedJob)

    async def test_difference_2_a_grant_that_was_given_back(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        await scene.release(grant)
        await self._refused(await scene.seal(grant), Refusal.STALE_LEASE, JobState.QUEUED)

    async def test_difference_2_another_device(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        answer = await scene.seal(grant, recipient=device(2).key_id)
        await self._refused(answer, Refusal.WRONG_RECIPIENT, JobState.AWAITING_PAYLOAD)
        assert (await scene.job("a")).payload is None

    async def test_difference_2_the_lease_is_judged_before_the_device(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        answer = await scene.seal(grant, lease_id="invented", recipient=device(2).key_id)
        await self._refused(answer, Refusal.STALE_LEASE, JobState.AWAITING_PAYLOAD)

    async def test_gap_a_second_seal_is_too_late(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.ready("a")
        await self._refused(await scene.seal(grant), Refusal.TOO_LATE, JobState.READY)
        await scene.take(grant)
        await self._refused(await scene.seal(grant), Refusal.TOO_LATE, JobState.RUNNING)
        await scene.complete(grant)
        await self._refused(await scene.seal(grant), Refusal.TOO_LATE, JobState.DONE)

    async def test_gap_an_unknown_job(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        answer = await store.seal(SITE, LeaseRef("a", "invented"), device().key_id, envelope())
        assert answer == TooLate(Refusal.NOT_FOUND, None)

    async def test_gap_another_sites_job_is_unknown(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        answer = await store_harness.store.seal("site_other", reference(grant), device().key_id, envelope())
        assert answer == TooLate(Refusal.NOT_FOUND, None)

    async def test_gap_not_ready_until_sealed(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        assert await scene.take(grant) is Refusal.NOT_READY

    async def test_difference_3_finished_and_never_sealed(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        await scene.complete(grant)
        assert await scene.take(grant) is Refusal.TERMINAL

    async def test_gap_the_payload_can_be_taken_again(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.running("a")
        assert await scene.take(grant) == envelope()
        assert await scene.state("a") == "running"

    async def _refused(self, answer: RoutedJob | TooLate, refusal: Refusal, found: JobState) -> None:
        assert isinstance(answer, TooLate)
        assert answer.was is not None
        assert (answer.refusal, answer.was.state) == (refusal, found)


class CancellingCases:
    """A cancelled job is granted, sealed and handed over no more."""

    async def test_difference_4_an_unheld_job_ends_at_once(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a")
        assert await store_harness.store.cancel(SITE, "a") is True
        assert await scene.state("a") == "gone"
        assert await store_harness.store.cancel(SITE, "a") is False
        assert ids(await scene.claim()) == []
        assert (await scene.enqueue("a")).cancelled is False

    async def test_difference_4_a_held_one_is_not_sealed(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        await store_harness.store.cancel(SITE, "a")
        answer = await scene.seal(grant)
        assert isinstance(answer, TooLate)
        assert answer.refusal is Refusal.CANCELLED
        assert [job.key.job_id for job in await store_harness.store.awaiting(SITE)] == []

    async def test_difference_4_nor_handed_over(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.ready("a")
        await store_harness.store.cancel(SITE, "a")
        assert await scene.take(grant) is Refusal.CANCELLED

    async def test_difference_4_nor_handed_over_again(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.running("a")
        await store_harness.store.cancel(SITE, "a")
        assert await scene.take(grant) is Refusal.CANCELLED

    async def test_gap_a_cancelled_job_is_never_granted(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        await store_harness.store.cancel(SITE, "a")
        assert ids(await scene.claim("runner_2")) == []
        await scene.release(grant)
        assert await scene.state("a") == "gone"
        assert ids(await scene.claim("runner_2")) == []

    async def test_gap_nor_repeated_to_the_one_who_claimed_it(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", "b")
        await scene.claim(request_id="r-1")
        await store_harness.store.cancel(SITE, "a")
        assert ids(await scene.claim(request_id="r-1")) == ["b"]

    async def test_difference_4_a_lapsed_window_ends_it(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.claimed("a")
        await store_harness.store.cancel(SITE, "a")
        await store_harness.advance(10_000)
        swept = await store_harness.store.sweep()
        assert [key.job_id for key in swept.ended] == ["a"]
        assert await scene.state("a") == "gone"

    async def test_difference_4_a_lapsed_lease_ends_it(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.running("a", lease_ms=5_000)
        await store_harness.store.cancel(SITE, "a")
        await store_harness.advance(5_000)
        assert await scene.state("a") == "gone"

    async def test_difference_4_the_holder_may_still_report(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.running("a")
        await store_harness.store.cancel(SITE, "a")
        assert await scene.complete(grant) == Completed(accepted=True)
        assert await scene.state("a") == "done"
        assert list(await store_harness.store.cancel_requests("runner_1")) == []

    async def test_difference_4_told_until_acknowledged(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        await scene.enqueue("a", "b")
        first, second = await scene.claim()
        await store.cancel(SITE, "a")
        await store.cancel(SITE, "b")
        assert list(await store.cancel_requests("runner_1")) == [reference(first), reference(second)]
        await store.acknowledge_cancels("runner_2", [reference(first)])
        await store.acknowledge_cancels("runner_1", [LeaseRef("a", "invented"), reference(second)])
        assert list(await store.cancel_requests("runner_1")) == [reference(first)]
        assert list(await store.cancel_requests("runner_2")) == []

    async def test_cancel_is_idempotent_and_spares_the_finished(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        grant = await scene.claimed("a")
        assert await store.cancel(SITE, "a") is True
        assert await store.cancel(SITE, "a") is True
        await scene.release(grant)
        await scene.done("b")
        assert await store.cancel(SITE, "b") is True
        assert (await scene.job("b")).cancelled is False
        assert [job.key.job_id for job in await store.finished(SITE)] == ["b"]

    async def test_a_cancelled_grant_keeps_its_slot_until_it_ends(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", "b", "c")
        first, _ = await scene.claim()
        await store_harness.store.cancel(SITE, "a")
        assert ids(await scene.claim("runner_2")) == []
        await scene.release(first)
        assert ids(await scene.claim("runner_2")) == ["c"]


class VerdictCases:
    """One word for every lease that is asked about."""

    async def test_difference_9_each_lease_in_order(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        finished = await scene.done("finished")
        cancelled = await scene.running("cancelled")
        await store.cancel(SITE, "cancelled")
        active = await scene.claimed("active")
        invented = LeaseRef("active", "invented")
        asked = [
            invented,
            reference(active),
            reference(finished),
            reference(cancelled),
            reference(active),
        ]
        verdicts = await store.renew_leases("runner_1", asked, 30_000)
        assert [verdict.lease for verdict in verdicts] == asked
        assert [verdict.state.value for verdict in verdicts] == [
            "lost",
            "active",
            "completed",
            "cancel-requested",
            "active",
        ]
        assert [verdict.remaining_ms for verdict in verdicts] == [0, 30_000, 0, 30_000, 30_000]

    async def test_difference_9_a_finished_lease_is_not_renewed(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.done("a")
        (verdict,) = await scene.renew(grant, lease_ms=600_000)
        claim = (await scene.job("a")).claim
        assert verdict.state is VerdictState.COMPLETED
        assert claim is not None
        assert claim.lease_expires_at_ms == grant.lease_expires_at_ms

    async def test_difference_9_a_cancelled_lease_is_renewed(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.running("a", lease_ms=20_000)
        await store_harness.store.cancel(SITE, "a")
        await store_harness.advance(15_000)
        await scene.renew(grant, lease_ms=20_000)
        await store_harness.advance(15_000)
        assert await scene.state("a") == "running"

    async def test_difference_9_why_a_lease_was_lost(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        now_ms = await store.now()
        await scene.enqueue("deadline", deadline_at_ms=now_ms + 12_000)
        (deadline,) = await scene.claim(lease_ms=100_000)
        await scene.seal(deadline)
        released = await scene.claimed("released")
        await scene.release(released, ReleaseReason.REFUSED)
        expired = await scene.ready("expired", lease_ms=12_000)
        window = await scene.claimed("window")
        cancelled = await scene.claimed("cancelled")
        await store.cancel(SITE, "cancelled")
        await store_harness.advance(13_000)
        verdicts = await scene.renew(deadline, released, expired, window, cancelled)
        assert {verdict.state for verdict in verdicts} == {VerdictState.LOST}
        assert [verdict.end for verdict in verdicts] == [
            LeaseEnd.DEADLINE_PASSED,
            LeaseEnd.RELEASED,
            LeaseEnd.EXPIRED,
            LeaseEnd.WINDOW_LAPSED,
            LeaseEnd.CANCELLED,
        ]
        strangers = await scene.renew(deadline, released, expired, window, cancelled, runner="runner_2")
        assert {verdict.end for verdict in strangers} == {None}

    async def test_difference_9_finished_and_collected_is_still_completed(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.done("a")
        await store_harness.store.acknowledge(SITE, ["a"])
        (verdict,) = await scene.renew(grant)
        assert verdict.state is VerdictState.COMPLETED
        assert await scene.complete(grant) == Completed(accepted=False, duplicate=True)

    async def test_held_lists_what_is_unfinished(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.done("done")
        running = await scene.running("running")
        waiting = await scene.claimed("waiting")
        held = await store_harness.store.held("runner_1")
        assert [(grant.stub.id, grant.lease_id) for grant in held] == [
            ("running", running.lease_id),
            ("waiting", waiting.lease_id),
        ]
        assert [grant.awaiting_until_ms for grant in held] == [0, waiting.awaiting_until_ms]
        assert {grant.site_id for grant in held} == {"site_store"}
        assert list(await store_harness.store.held("runner_2")) == []
