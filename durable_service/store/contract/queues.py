"""Where tasks wait, and what time makes of them."""
# ruff: noqa: S101

from durable_service.core.actions import Suspended, mark_unknown
from durable_service.core.availability import Queue
from durable_service.core.definition import Driver
from durable_service.core.leases import renew, yield_task
from durable_service.core.outcomes import cancel
from durable_service.core.states import TaskState
from durable_service.store.base import ClaimableQuery
from durable_service.store.contract.scene import DRIVER, LEASE_MS, TENANT, Scene, StoreHarness, key

OURS = ClaimableQuery(TENANT, frozenset({DRIVER}))
RECOVERY = ClaimableQuery(TENANT, queue=Queue.RECOVERY)


class QueueCases:
    """The work that is there, and the clocks."""

    async def claimable(self, harness: StoreHarness, query: ClaimableQuery = OURS) -> list[str]:
        return [record.key.task_id for record in await harness.store.claimable(query)]

    async def test_work_is_found_by_tenant_and_driver(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("ours")
        await scene.create("newer", driver=Driver("fixture", 2))
        await scene.create("other", driver=Driver("other", 1))
        await scene.create("nobody", driver=None)
        await scene.create("foreign", tenant="elsewhere")
        assert await self.claimable(store_harness) == ["ours"]
        both = ClaimableQuery(TENANT, frozenset({DRIVER, Driver("other", 1)}))
        assert sorted(await self.claimable(store_harness, both)) == ["other", "ours"]
        everything = await self.claimable(store_harness, ClaimableQuery(TENANT))
        assert sorted(everything) == ["newer", "nobody", "other", "ours"]
        assert await self.claimable(store_harness, ClaimableQuery(TENANT, frozenset())) == []

    async def test_first_come_first_served(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        for name in ("c", "a", "b"):
            await scene.create(name)
            await store_harness.advance(1)
        assert await self.claimable(store_harness) == ["c", "a", "b"]
        assert await self.claimable(store_harness, ClaimableQuery(TENANT, OURS.drivers, limit=2)) == [
            "c",
            "a",
        ]
        holder = await scene.claim("c")
        assert await self.claimable(store_harness) == ["a", "b"]
        await scene.release("c", holder)
        assert await self.claimable(store_harness) == ["a", "b", "c"]

    async def test_a_held_task_is_there_when_its_lease_is_over(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a")
        holder = await scene.claim("a")
        start = await store_harness.store.now_ms()
        assert await store_harness.store.next_claimable_ms(OURS) == start + LEASE_MS
        await store_harness.advance(LEASE_MS - 1)
        assert await self.claimable(store_harness) == []
        await scene.run("a", renew, holder, LEASE_MS)
        await store_harness.advance(1)
        assert await self.claimable(store_harness) == []
        await store_harness.advance(LEASE_MS - 1)
        assert await self.claimable(store_harness) == ["a"]

    async def test_a_yielded_task_comes_back(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a")
        holder = await scene.claim("a")
        until = await store_harness.store.now_ms() + 500
        await scene.run("a", yield_task, holder, until, "later")
        assert await self.claimable(store_harness) == []
        await store_harness.advance(500)
        assert await self.claimable(store_harness) == ["a"]

    async def test_an_open_outcome_waits_for_evidence(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a")
        holder = await scene.claim("a")
        await scene.prepare("a", holder, "send")
        await scene.dispatch("a", holder, "send")
        assert await self.claimable(store_harness, RECOVERY) == []
        await scene.run("a", mark_unknown, holder, "send")
        await scene.release("a", holder)
        assert await self.claimable(store_harness, RECOVERY) == ["a"]
        assert await self.claimable(store_harness) == []

    async def test_a_suspended_task_waits_for_its_approver(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a")
        holder = await scene.claim("a")
        await scene.prepare("a", holder, "send", approver="reviewer")
        assert await scene.dispatch("a", holder, "send") == Suspended("a-send")
        await scene.release("a", holder)
        assert await self.claimable(store_harness) == []
        await scene.decide("a", "a-send", "reviewer")
        assert await self.claimable(store_harness) == ["a"]

    async def test_an_approval_that_nobody_gives_lets_the_task_go(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a")
        holder = await scene.claim("a")
        await scene.prepare("a", holder, "send", approver="reviewer")
        await scene.dispatch("a", holder, "send")
        await scene.release("a", holder)
        await store_harness.advance(60_000)
        assert await self.claimable(store_harness) == ["a"]
        assert await store_harness.store.due(10) == [key("a")]
        await scene.sweep("a")
        assert await store_harness.store.due(10) == []
        assert await self.claimable(store_harness) == ["a"]

    async def test_an_ended_task_is_nobodys_work(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a", "b")
        await scene.run("a", cancel, "")
        holder = await scene.claim("b")
        await scene.complete("b", holder)
        assert await self.claimable(store_harness) == []
        assert await store_harness.store.next_claimable_ms(OURS) is None
        assert await store_harness.store.next_due_ms() is None

    async def test_what_is_due(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        start = await store.now_ms()
        await scene.create("late", start_deadline_ms=start + 50)
        await scene.create("later", "held", finish_deadline_ms=start + 70)
        await scene.claim("held", lease_ms=60)
        assert await store.next_due_ms() == start + 50
        await store_harness.advance(49)
        assert await store.due(10) == []
        await store_harness.advance(21)
        assert await store.due(10) == [key("late"), key("held"), key("later")]
        assert await store.due(1) == [key("late")]
        for name in ("late", "later", "held"):
            await scene.sweep(name)
            assert (await scene.record(name)).state is TaskState.CANCELED
        assert await store.next_due_ms() is None

    async def test_the_clock_never_goes_back(self, store_harness: StoreHarness) -> None:
        before = await store_harness.store.now_ms()
        await store_harness.advance(3)
        assert await store_harness.store.now_ms() == before + 3
