"""How workers come to hold tasks."""

import asyncio

import pytest
from google.protobuf.duration_pb2 import Duration

from sealwork.durable.v1 import claim_pb2, lease_pb2, task_pb2, worker_service_pb2
from tests.durable_service.durable_fixture import MAIL, DurableUnderTest
from tests.durable_service.planes.every_method import Scene, begin, prepare
from tests.harness.waiting import eventually

WAIT = Duration(seconds=10)


async def claim_next(
    service: DurableUnderTest, claim_id: str = "c", **fields: object
) -> claim_pb2.ClaimedTask:
    given = {"claim_id": claim_id, "worker_id": "worker-1", "drivers": [MAIL]} | fields
    answer = await service.call("worker", "ClaimNext", **given)
    claimed: claim_pb2.ClaimedTask = answer.claimed
    return claimed


class TestNext:
    async def test_the_one_that_has_waited_longest(self, service: DurableUnderTest) -> None:
        for name in ("first", "second"):
            await service.create(name)
            await service.pass_time(1)
        claimed = await claim_next(service)

        assert claimed.task.task_id == "first"
        assert claimed.reason == claim_pb2.CLAIM_REASON_FRESH
        assert (claimed.lease.worker_id, claimed.lease.fence) == ("worker-1", 1)
        assert claimed.lease.remaining.ToMilliseconds() == 60_000
        assert claimed.task.HasField("definition")

    async def test_nothing_there(self, service: DurableUnderTest) -> None:
        assert not (await claim_next(service)).HasField("task")

    async def test_a_repeat_gets_the_same_grant(self, service: DurableUnderTest) -> None:
        await service.create("one")
        await service.create("two")
        first = await claim_next(service)
        again = await claim_next(service)

        assert (again.task.task_id, again.lease.fence) == (first.task.task_id, first.lease.fence)
        assert (await claim_next(service, "c2")).task.task_id == "two"

    async def test_it_waits_for_a_task(self, service: DurableUnderTest) -> None:
        waiting = asyncio.create_task(claim_next(service, wait=WAIT))
        await eventually(lambda: bool(service.server._offers._seekers))
        await service.create()

        assert (await waiting).task.task_id == "task"

    async def test_several_wait_and_each_gets_one(self, service: DurableUnderTest) -> None:
        waiting = [asyncio.create_task(claim_next(service, f"c{number}", wait=WAIT)) for number in range(3)]
        await eventually(lambda: len(next(iter(service.server._offers._seekers.values()), {})) == 3)
        for number in range(3):
            await service.create(f"task-{number}")

        assert {(await each).task.task_id for each in waiting} == {"task-0", "task-1", "task-2"}

    async def test_a_fruitless_wait(self, service: DurableUnderTest) -> None:
        waiting = asyncio.create_task(claim_next(service, wait=WAIT))
        while not waiting.done():
            await service.pass_time(1_000)

        assert not waiting.result().HasField("task")

    async def test_it_hears_of_a_pause_that_is_over(self, service: DurableUnderTest) -> None:
        await service.create(delay=Duration(seconds=3))
        waiting = asyncio.create_task(claim_next(service, wait=WAIT))
        await eventually(lambda: bool(service.server._offers._seekers))
        await service.pass_time(3_000)

        assert (await waiting).task.task_id == "task"

    async def test_those_without_attempts_are_stopped_on_the_way(self, service: DurableUnderTest) -> None:
        await service.create("spent", definition={"budget": task_pb2.Budget(max_attempts=1)})
        lease = await service.claim("spent")
        await service.call("worker", "ReleaseTask", lease=lease)
        await service.pass_time(1)
        await service.create("fresh")

        assert (await claim_next(service)).task.task_id == "fresh"
        assert (await service.task("spent")).state == task_pb2.TASK_STATE_STOPPED


class TestOne:
    async def ask(
        self, service: DurableUnderTest, claim_id: str = "c2"
    ) -> worker_service_pb2.ClaimTaskResponse:
        answer: worker_service_pb2.ClaimTaskResponse = await service.call(
            "worker", "ClaimTask", task_id="task", claim_id=claim_id, worker_id="worker-1"
        )
        return answer

    async def test_a_live_lease_stands_against_it(self, service: DurableUnderTest) -> None:
        await service.running()
        await service.pass_time(20_000)
        refused = (await self.ask(service)).not_claimable

        assert refused.reason == claim_pb2.NOT_CLAIMABLE_REASON_LEASED
        assert refused.retry_after.ToMilliseconds() == 40_000

    async def test_the_ends(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        await service.call("worker", "FailTask", lease=lease, failure="broken")

        refused = (await self.ask(service)).not_claimable
        assert refused.reason == claim_pb2.NOT_CLAIMABLE_REASON_TERMINAL
        assert refused.status.state == task_pb2.TASK_STATE_FAILED

    async def test_used_up_attempts(self, service: DurableUnderTest) -> None:
        lease = await service.running(definition={"budget": task_pb2.Budget(max_attempts=1)})
        await service.call("worker", "ReleaseTask", lease=lease)

        assert (await self.ask(service)).stopped.state == task_pb2.TASK_STATE_STOPPED

    async def test_a_pending_approval(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        asked = await service.call("worker", "PrepareAction", prepare(lease, clock=service.clock))
        await service.call("worker", "BeginDispatch", begin(lease))
        await service.call("worker", "ReleaseTask", lease=lease)

        refused = (await self.ask(service)).not_claimable
        assert refused.reason == claim_pb2.NOT_CLAIMABLE_REASON_AWAITING_APPROVAL
        assert list(refused.approval_ids) == [asked.approval.approval_id]
        assert refused.retry_after.ToMilliseconds() == 86_400_000

    async def test_a_task_after_a_lapse_is_reclaimed(self, service: DurableUnderTest) -> None:
        await service.running()
        await service.pass_time(60_000)

        assert (await self.ask(service)).claimed.reason == claim_pb2.CLAIM_REASON_RECLAIMED


class TestRecovery:
    async def test_an_open_outcome_is_settled_by_an_operator(self, service: DurableUnderTest) -> None:
        scene = await Scene(service).build()
        await service.pass_time(60_000)
        refused = await service.call(
            "worker", "ClaimTask", task_id="task", claim_id="c2", worker_id="worker-1"
        )
        claim = {"task_id": "task", "claim_id": "r", "worker_id": "desk"}
        claimed = (await service.call("operator", "ClaimForRecovery", **claim)).claimed
        lease = lease_pb2.LeaseRef(task_id="task", worker_id="desk", fence=claimed.lease.fence)
        settled = await service.call(
            "operator",
            "ReconcileAction",
            lease=lease,
            action_id="lost",
            prepared_hash=scene.prepared_hash,
            connector_version="fixture@1",
            finding=1,
            evidence_ref="receipt",
            result_ref="result",
        )

        assert refused.not_claimable.reason == claim_pb2.NOT_CLAIMABLE_REASON_RECOVERY_ONLY
        assert list(refused.not_claimable.action_ids) == ["lost", "sent"]
        assert claimed.reason == claim_pb2.CLAIM_REASON_RECOVERY
        assert settled.action.result_ref == "result"
        assert not settled.action.HasField("args")

    async def test_nothing_to_recover(self, service: DurableUnderTest) -> None:
        await service.create()
        answer = await service.call(
            "operator", "ClaimForRecovery", task_id="task", claim_id="r", worker_id="desk"
        )

        assert answer.not_claimable.reason == 6


class TestRenewing:
    async def test_a_verdict_for_each(self, service: DurableUnderTest) -> None:
        held = await service.running("held")
        given_back = await service.running("given-back")
        await service.call("worker", "ReleaseTask", lease=given_back)
        replaced = await service.running("replaced")
        await service.call("worker", "ReleaseTask", lease=replaced)
        await service.claim("replaced", "another-claim")
        answer = await service.call("worker", "RenewLeases", leases=[held, given_back, replaced])

        assert [(each.state, each.end_reason) for each in answer.verdicts] == [
            (lease_pb2.LEASE_STATE_ACTIVE, 0),
            (lease_pb2.LEASE_STATE_LOST, lease_pb2.LEASE_END_REASON_RELEASED),
            (lease_pb2.LEASE_STATE_LOST, lease_pb2.LEASE_END_REASON_SUPERSEDED),
        ]

    @pytest.mark.parametrize(
        ("leases", "fields"),
        [
            ([], ("leases",)),
            ([lease_pb2.LeaseRef(task_id="t", worker_id="w", fence=1)] * 2, ("leases[1]",)),
            ([lease_pb2.LeaseRef(task_id="t", fence=1)], ("leases[0].worker_id",)),
            ([lease_pb2.LeaseRef(task_id="t", worker_id="w")], ("leases[0].fence",)),
            (
                [lease_pb2.LeaseRef(task_id=f"t{number}", worker_id="w", fence=1) for number in range(501)],
                ("leases",),
            ),
        ],
    )
    async def test_what_is_refused(
        self, service: DurableUnderTest, leases: list[lease_pb2.LeaseRef], fields: tuple[str, ...]
    ) -> None:
        assert (await service.party("worker").refused("RenewLeases", leases=leases)).fields == fields
