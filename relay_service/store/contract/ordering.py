"""Order within a route, fairness between routes, and what is bounded."""
# ruff: noqa: S101

from relay_service.core.model import Audience, JobStub, Refusal, ReleaseReason, SizeClass
from relay_service.store.contract.scene import (
    OTHER_SITE,
    SITE,
    YEAR_2100_MS,
    Scene,
    StoreHarness,
    ids,
)

BOTH = ((SITE, "alice"), (SITE, "bob"))


class OrderCases:
    """First in, first out inside a route."""

    async def test_gap_first_in_first_out(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("c", "a", "b")
        order = []
        for _ in range(3):
            (grant,) = await scene.claim(maximum=1)
            order.append(grant.stub.id)
            await scene.seal(grant)
        assert order == ["c", "a", "b"]

    async def test_gap_a_requeued_job_keeps_its_place(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", "b", "c")
        (first,) = await scene.claim(maximum=1)
        await scene.release(first)
        assert ids(await scene.claim("runner_2")) == ["a", "b"]

    async def test_gap_an_evicted_job_comes_back_last(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", "b")
        await store_harness.store.cancel(SITE, "a")
        await scene.enqueue("a")
        assert ids(await scene.claim()) == ["b", "a"]

    async def test_gap_order_holds_over_kinds_and_audiences(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("1", kind="llm.chat")
        await scene.enqueue("2", audience=Audience.TEAM)
        await scene.enqueue("3", kind="llm.chat", audience=Audience.TEAM)
        kinds = ("llm.generate", "llm.chat")
        assert ids(await scene.claim(kinds=kinds)) == ["1", "2"]
        assert ids(await scene.claim("runner_2", "bob", kinds=kinds)) == []

    async def test_gap_order_holds_for_what_a_runner_may_take(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", "b", "c", "d")
        for grant in await scene.claim():
            await scene.release(grant, ReleaseReason.REFUSED)
        assert ids(await scene.claim("runner_1")) == ["c", "d"]
        for grant in await store_harness.store.held("runner_1"):
            await scene.release(grant)
        assert ids(await scene.claim("runner_2")) == ["a", "b"]


class FairnessCases:
    """No backlog delays another route."""

    async def test_difference_13_one_claim_goes_round(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a1", "a2", "a3")
        await scene.enqueue("b1", "b2", "b3", owner="bob", audience=Audience.TEAM)
        assert ids(await scene.claim(routes=BOTH)) == ["a1", "b1", "a2", "b2"]

    async def test_difference_13_single_claims_go_round(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue(*(f"a{number}" for number in range(50)))
        await scene.enqueue("b1", "b2", owner="bob", audience=Audience.TEAM)
        await scene.enqueue("c1", site=OTHER_SITE, owner="carol", audience=Audience.TEAM)
        order = []
        for _ in range(6):
            (grant,) = await scene.claim(routes=[*BOTH, (OTHER_SITE, "carol")], maximum=1)
            order.append(grant.stub.id)
            await scene.seal(grant)
        assert order == ["a0", "b1", "c1", "a1", "b2", "a2"]

    async def test_difference_13_a_full_route_does_not_block_the_rest(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a1", "a2", "a3")
        assert ids(await scene.claim()) == ["a1", "a2"]
        await scene.enqueue("b1", owner="bob", audience=Audience.TEAM)
        assert ids(await scene.claim(routes=BOTH)) == ["b1"]

    async def test_difference_13_a_new_route_waits_one_round(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a1", "a2", "a3")
        (grant,) = await scene.claim(maximum=1)
        await scene.seal(grant)
        await scene.enqueue("b1", owner="bob", audience=Audience.TEAM)
        assert ids(await scene.claim(routes=BOTH)) == ["a2", "b1", "a3"]

    async def test_gap_routes_with_nothing_for_this_device_are_passed_over(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("chat", kind="llm.chat")
        await scene.enqueue("b1", owner="bob", audience=Audience.PRIVATE)
        await scene.enqueue("b2", owner="bob", audience=Audience.TEAM)
        assert ids(await scene.claim(routes=BOTH, maximum=1)) == ["b2"]


class BoundCases:
    """Quotas of sites and devices, and claims that are repeated."""

    async def test_difference_14_unfinished_jobs_of_a_site(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        await scene.enqueue(*(f"job-{number}" for number in range(200)))
        one_more = JobStub(
            "more", "llm.generate", "bob", "S", Audience.TEAM, SizeClass.SMALL, False, YEAR_2100_MS
        )
        assert await store.enqueue(SITE, one_more) is Refusal.QUOTA_EXCEEDED
        assert await scene.state("more") == "gone"
        assert (await scene.enqueue("job-7")).key.job_id == "job-7"
        await scene.enqueue("more", site=OTHER_SITE)
        await scene.complete((await scene.claim(maximum=1))[0])
        await scene.enqueue("more")
        assert await scene.state("more") == "queued"

    async def test_difference_14_leases_of_a_device(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        owners = [f"owner-{number}" for number in range(40)]
        for owner in owners:
            await scene.enqueue(f"{owner}-1", f"{owner}-2", owner=owner, audience=Audience.TEAM)
        routes = [(SITE, owner) for owner in owners]
        first = await scene.claim(routes=routes, maximum=64)
        assert len(first) == 64
        assert ids(await scene.claim(routes=routes, maximum=64)) == []
        assert len(await scene.claim("runner_2", routes=routes, maximum=64)) == 16
        await scene.release(first[0])
        assert ids(await scene.claim(routes=routes, maximum=64)) == [first[0].stub.id]
        await scene.complete(first[1])
        assert len(await store_harness.store.held("runner_1")) == 63

    async def test_maximum_is_obeyed(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", "b")
        assert ids(await scene.claim(maximum=0)) == []
        assert ids(await scene.claim(maximum=1)) == ["a"]

    async def test_difference_15_a_repeated_claim_is_answered_as_before(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", "b", "c", "d")
        first = await scene.claim(request_id="r-1")
        for grant in first:
            await scene.seal(grant)
        again = await scene.claim(request_id="r-1")
        assert ids(first) == ["a", "b"]
        assert [(grant.stub.id, grant.lease_id) for grant in again] == [
            (grant.stub.id, grant.lease_id) for grant in first
        ]
        assert ids(await scene.claim(request_id="r-2")) == ["c", "d"]

    async def test_difference_15_with_the_present_clocks(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a")
        (first,) = await scene.claim(request_id="r-1")
        await scene.seal(first)
        (verdict,) = await scene.renew(first, lease_ms=600_000)
        (again,) = await scene.claim(request_id="r-1")
        assert again.lease_expires_at_ms == verdict.expires_at_ms
        assert again.awaiting_until_ms == 0

    async def test_difference_15_only_what_is_still_held(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", "b", "c")
        first, second = await scene.claim(request_id="r-1")
        await scene.release(first, ReleaseReason.REFUSED)
        (again,) = await scene.claim(request_id="r-1")
        assert again.lease_id == second.lease_id
        await scene.complete(second)
        assert ids(await scene.claim(request_id="r-1")) == ["c"]

    async def test_difference_15_an_empty_answer_is_not_remembered(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        assert ids(await scene.claim(request_id="r-1")) == []
        await scene.enqueue("a")
        assert ids(await scene.claim(request_id="r-1")) == ["a"]

    async def test_difference_15_request_ids_are_each_runners_own(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", "b")
        assert ids(await scene.claim("runner_1", maximum=1, request_id="r-1")) == ["a"]
        assert ids(await scene.claim("runner_2", maximum=1, request_id="r-1")) == ["b"]

    async def test_difference_12_names_are_never_joined(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("c", site="a:b", owner="alice")
        await scene.enqueue("b:c", site="a", owner="alice")
        assert (await scene.job("c", "a:b")).key.job_id == "c"
        assert await scene.state("b:c", "a:b") == "gone"
        assert await scene.state("c", "a") == "gone"
        assert ids(await scene.claim(routes=[("a", "alice")])) == ["b:c"]
        assert ids(await scene.claim(routes=[("a:b", "ali")])) == []
