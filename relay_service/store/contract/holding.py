"""Reference cases about leases, payloads and results. Numbers are those of the reference's list."""
# ruff: noqa: S101

from relay_service.core.model import (
    Direction,
    Disposition,
    JobState,
    LeaseRef,
    Refusal,
    ReleaseReason,
    VerdictState,
)
from relay_service.store.base import Completed
from relay_service.store.contract.scene import (
    OTHER_SITE,
    SITE,
    YEAR_2100_MS,
    Scene,
    StoreHarness,
    envelope,
    ids,
    reference,
)


class HoldingCases:
    """What a holder may do, and what everybody else is told."""

    async def test_09_a_stale_lease_and_the_current_one(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.ready("a")
        stale = await store_harness.store.take_payload("runner_1", LeaseRef("a", "invented"))
        assert stale is Refusal.STALE_LEASE
        taken = await scene.take(grant)
        assert not isinstance(taken, Refusal)
        assert taken == envelope()
        assert (taken.ciphertext, taken.recipient_key_id, taken.sender_key_id) == (
            b"AAAA",
            "BYOLLM-R",
            "BYOLLM-S",
        )
        assert (taken.direction, taken.deadline_at_ms) == (Direction.PAYLOAD, YEAR_2100_MS)

    async def test_10_the_lease_of_another_job(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", "b")
        first, second = await scene.claim()
        await scene.seal(second)
        crossed = await store_harness.store.take_payload("runner_1", LeaseRef("b", first.lease_id))
        assert crossed is Refusal.STALE_LEASE
        assert await scene.take(second) == envelope()

    async def test_11_renewal_extends(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a", lease_ms=1_000)
        (verdict,) = await scene.renew(grant, lease_ms=60_000)
        assert verdict.lease == LeaseRef("a", grant.lease_id)
        assert (verdict.state, verdict.remaining_ms, verdict.end) == (VerdictState.ACTIVE, 60_000, None)
        assert verdict.expires_at_ms > grant.lease_expires_at_ms
        claim = (await scene.job("a")).claim
        assert claim is not None
        assert claim.lease_expires_at_ms == verdict.expires_at_ms

    async def test_12_a_lost_lease(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a", lease_ms=1_000)
        lost = LeaseRef("a", "ended-long-ago")
        (verdict,) = await store_harness.store.renew_leases("runner_1", [lost], 60_000)
        assert (verdict.lease, verdict.state) == (lost, VerdictState.LOST)
        assert (verdict.remaining_ms, verdict.expires_at_ms) == (0, 0)
        claim = (await scene.job("a")).claim
        assert claim is not None
        assert claim.lease_id == grant.lease_id
        assert claim.lease_expires_at_ms == grant.lease_expires_at_ms

    async def test_19_done_is_done(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        assert await scene.take(grant) is Refusal.NOT_READY
        assert await scene.complete(grant) == Completed(accepted=True)
        assert await scene.release(grant, ReleaseReason.SHUTDOWN) == []
        assert await scene.state("a") == "done"
        finished = await store_harness.store.finished(SITE)
        assert [(job.key.job_id, job.disposition) for job in finished] == [("a", Disposition.OK)]
        assert ids(await scene.claim("runner_2")) == []

    async def test_23_cancel_reaches_the_holder_and_only_the_sites_own(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        assert await store_harness.store.cancel(SITE, "a") is True
        assert list(await store_harness.store.cancel_requests("runner_1")) == [reference(grant)]
        assert await store_harness.store.cancel(OTHER_SITE, "a") is False

    async def test_24_the_first_result_wins(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        first = await scene.complete(grant, ciphertext=b"one", disposition=Disposition.OK)
        second = await scene.complete(grant, ciphertext=b"two", disposition=Disposition.ERROR)
        assert first == Completed(accepted=True, duplicate=False)
        assert second == Completed(accepted=False, duplicate=True)
        job = await scene.job("a")
        assert job.disposition is Disposition.OK
        assert job.result == envelope(b"one", direction=Direction.RESULT)

    async def test_25_duplicate_is_for_the_finisher_alone(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        await scene.complete(grant)
        answer = await scene.complete(grant, runner="runner_2", disposition=Disposition.ERROR)
        assert answer is Refusal.NOT_HOLDER
        assert (await scene.job("a")).disposition is Disposition.OK

    async def test_26_a_grant_that_ended(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.claimed("a")
        answer = await store_harness.store.complete(
            "runner_1", LeaseRef("a", "invented"), envelope(), Disposition.OK
        )
        assert answer is Refusal.STALE_LEASE
        job = await scene.job("a")
        assert (job.state, job.result) == (JobState.AWAITING_PAYLOAD, None)

    async def test_27_take_after_done(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.done("a")
        assert await scene.take(grant) is Refusal.TERMINAL
        assert await scene.state("a") == "done"

    async def test_28_no_oracle_for_other_tenants(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("secret", site=OTHER_SITE, owner="bob")
        mine = await scene.claimed("mine")
        store = store_harness.store
        secret = await store.take_payload("runner_1", LeaseRef("secret", mine.lease_id))
        nothing = await store.take_payload("runner_1", LeaseRef("nothing", mine.lease_id))
        assert secret is Refusal.NOT_FOUND
        assert nothing is Refusal.NOT_FOUND

    async def test_28b_nor_for_one_that_is_held_or_done_elsewhere(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        mine = await scene.claimed("mine")
        await scene.enqueue("held", "done", site=OTHER_SITE, owner="bob")
        theirs = await scene.claim("runner_2", "bob", routes=[(OTHER_SITE, "bob")])
        await scene.complete(theirs[1], runner="runner_2")
        for job_id in ("held", "done", "nothing"):
            lease = LeaseRef(job_id, mine.lease_id)
            store = store_harness.store
            assert await store.take_payload("runner_1", lease) is Refusal.NOT_FOUND
            assert await store.complete("runner_1", lease, envelope(), Disposition.OK) is Refusal.NOT_FOUND
            assert list(await store.release_leases("runner_1", [lease], ReleaseReason.PAUSE)) == []
            (verdict,) = await store.renew_leases("runner_1", [lease], 60_000)
            assert (verdict.state, verdict.end) == (VerdictState.LOST, None)

    async def test_another_runners_live_lease(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.running("a")
        assert await scene.take(grant, "runner_2") is Refusal.NOT_HOLDER
        assert await scene.complete(grant, "runner_2") is Refusal.NOT_HOLDER
        assert await scene.release(grant, runner="runner_2") == []
        (verdict,) = await scene.renew(grant, runner="runner_2")
        assert (verdict.state, verdict.end) == (VerdictState.LOST, None)
        assert await scene.state("a") == "running"
