"""Reference cases about enqueue and claim. Numbers are those of the reference's list."""
# ruff: noqa: S101

from relay_service.core.model import Audience, JobState, ReleaseReason
from relay_service.store.base import Enqueued
from relay_service.store.contract.scene import OTHER_SITE, SITE, Scene, StoreHarness, ids


class ClaimingCases:
    """Who gets which job."""

    async def test_01_enqueue_is_idempotent(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.claimed("a")
        again = await scene.enqueue("a")
        assert again.state is JobState.AWAITING_PAYLOAD

    async def test_02_unsealed_cap_holds_within_one_claim(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue(*(f"job-{number}" for number in range(10)))
        assert ids(await scene.claim(maximum=10)) == ["job-0", "job-1"]

    async def test_03_cap_is_per_owner(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a1", "a2", "a3")
        await scene.enqueue("b1", "b2", "b3", owner="bob")
        alices = await scene.claim()
        bobs = await scene.claim("runner_2", "bob", routes=[(SITE, "bob")])
        assert ids(alices) == ["a1", "a2"]
        assert ids(bobs) == ["b1", "b2"]

    async def test_04_an_abandoned_job_is_reoffered_to_the_same_runner(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        await scene.claimed("a")
        await store_harness.advance(11_000)
        assert ids(await scene.claim("runner_2")) == []
        assert ids(await scene.claim("runner_1")) == ["a"]

    async def test_05_a_fresh_job_is_not_sticky(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a")
        assert ids(await scene.claim("runner_9")) == ["a"]

    async def test_06_sealing_frees_slots(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", "b", "c", "d")
        first = await scene.claim()
        for grant in first:
            await scene.seal(grant)
        assert ids(first) == ["a", "b"]
        assert ids(await scene.claim()) == ["c", "d"]

    async def test_07_the_same_id_under_two_sites(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("shared")
        await scene.enqueue("shared", site=OTHER_SITE, owner="bob")
        assert (await scene.job("shared")).stub.owner == "alice"
        assert (await scene.job("shared", OTHER_SITE)).stub.owner == "bob"
        grants = await scene.claim()
        assert [(grant.site_id, grant.stub.owner) for grant in grants] == [("site_store", "alice")]
        assert await scene.enqueue("shared") == await scene.job("shared")

    async def test_08_routes_are_respected(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("mine")
        await scene.enqueue("theirs", owner="mallory")
        assert ids(await scene.claim()) == ["mine"]

    async def test_13_an_unreadable_stub_is_not_granted(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("bad", "good")
        spoiled = await store_harness.spoil_stub(SITE, "bad")
        expected = ["good"] if spoiled else ["bad", "good"]
        assert ids(await scene.claim()) == expected
        held = await store_harness.store.held("runner_1")
        assert ids(held) == expected

    async def test_14_private_work_is_not_for_other_owners(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", audience=Audience.PRIVATE)
        assert ids(await scene.claim("runner_2", "bob")) == []
        assert await scene.state("a") == "queued"

    async def test_15_private_work_is_for_the_owners_machine(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", audience=Audience.PRIVATE)
        assert ids(await scene.claim("runner_1", "alice")) == ["a"]

    async def test_15b_team_work_is_for_other_owners_too(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", audience=Audience.TEAM)
        assert ids(await scene.claim("runner_2", "bob")) == ["a"]

    async def test_16_a_refusal_is_remembered(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        assert await scene.release(grant, ReleaseReason.REFUSED) == ["a"]
        assert ids(await scene.claim("runner_1")) == []
        assert await scene.state("a") == "queued"
        assert ids(await scene.claim("runner_2")) == ["a"]

    async def test_17_not_before_is_honoured(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        assert await scene.release(grant, ReleaseReason.PAUSE, retry_after_ms=600_000) == ["a"]
        assert ids(await scene.claim("runner_1")) == []
        assert await scene.state("a") == "queued"
        assert ids(await scene.claim("runner_2")) == ["a"]

    async def test_18_not_before_in_the_past(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        await scene.release(grant, ReleaseReason.PAUSE, retry_after_ms=-1)
        assert ids(await scene.claim("runner_1")) == ["a"]

    async def test_20_a_plain_release_is_claimable_at_once(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.claimed("a")
        await scene.release(grant, ReleaseReason.SHUTDOWN)
        assert ids(await scene.claim("runner_1")) == ["a"]

    async def test_21_past_the_deadline(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        now_ms = await store_harness.store.now()
        await scene.enqueue("a", deadline_at_ms=now_ms - 1_000)
        assert ids(await scene.claim()) == []
        assert await scene.state("a") == "gone"

    async def test_22_sweep_reports_removals(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        now_ms = await store_harness.store.now()
        await scene.enqueue("short", deadline_at_ms=now_ms + 5_000)
        await scene.enqueue("long")
        await store_harness.advance(6_000)
        swept = await store_harness.store.sweep()
        assert [key.job_id for key in swept.ended] == ["short"]
        assert list(swept.requeued) == []
        assert await scene.state("long") == "queued"

    async def test_29_kind_match(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", kind="llm.generate")
        assert ids(await scene.claim(kinds=["llm.chat", "llm.generate"])) == ["a"]

    async def test_30_kind_mismatch(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", kind="llm.generate")
        assert ids(await scene.claim(kinds=["llm.chat"])) == []

    async def test_38_leases_run_by_the_stores_clock(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a")
        before = await store_harness.store.now()
        grants = await scene.claim(lease_ms=45_000)
        after = await store_harness.store.now()
        assert before + 45_000 <= grants[0].lease_expires_at_ms <= after + 45_000
        assert before + 10_000 <= grants[0].awaiting_until_ms <= after + 10_000

    async def test_enqueue_answers_whether_it_created(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        job = await scene.enqueue("a")
        first = await store_harness.store.enqueue(SITE, job.stub)
        other = await scene.enqueue("b")
        assert isinstance(first, Enqueued)
        assert (first.created, first.job) == (False, job)
        assert other.state is JobState.QUEUED
