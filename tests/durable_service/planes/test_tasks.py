"""Tasks as their owners see them."""

import asyncio

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask

from sealwork.durable.v1 import task_pb2, task_service_pb2
from tests.durable_service.durable_fixture import MAIL, START_MS, DurableUnderTest, creation
from tests.harness.waiting import eventually


class TestCreating:
    async def test_a_new_task(self, service: DurableUnderTest) -> None:
        answer = await service.create()

        assert answer.created
        task = answer.task
        assert (task.task_id, task.state, task.revision) == ("task", task_pb2.TASK_STATE_QUEUED, 0)
        assert task.create_time.ToMilliseconds() == START_MS
        assert list(task.conditions) == [task_pb2.TASK_CONDITION_CLAIMABLE]
        assert task.definition_digest.startswith("sha256:")
        assert not task.HasField("definition")

    async def test_the_same_again(self, service: DurableUnderTest) -> None:
        first = await service.create()
        again = await service.create(extensions=[task_service_pb2.NewExtension(name="x", value=b"1")])

        assert not again.created
        assert again.task == first.task

    async def test_another_definition_under_the_same_id(self, service: DurableUnderTest) -> None:
        first = await service.create()
        refusal = await service.party("alice").refused(
            "CreateTask", creation(definition={"input_ref": "other"})
        )

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ALREADY_EXISTS, "DEFINITION_MISMATCH")
        assert refusal.domain == "durable.sealwork.dev"
        assert refusal.metadata["existing_digest"] == first.task.definition_digest
        assert refusal.metadata["requested_digest"] != first.task.definition_digest

    async def test_an_id_that_another_actor_uses_tells_nothing_of_that_task(
        self, service: DurableUnderTest
    ) -> None:
        await service.create()
        refusal = await service.party("bob").refused("CreateTask", creation())

        assert refusal.reason == "DEFINITION_MISMATCH"
        assert set(refusal.metadata) == {"requested_digest"}

    async def test_defaults_and_json_are_those_of_the_core(self, service: DurableUnderTest) -> None:
        await service.create(definition={"input": b'{"b": 1.0, "a": [ ]}'})
        answer = await service.call("alice", "GetTask", task_id="task", view=task_pb2.TASK_VIEW_OWNER)

        definition = answer.task.definition
        assert definition.input == b'{"a":[],"b":1}'
        budget = definition.budget
        assert (budget.max_attempts, budget.max_tokens, budget.max_cost_micros) == (3, 1_000_000, 100_000_000)
        assert answer.task.identity.tenant_id == "acme"
        assert answer.task.identity.actor_id == "alice"
        assert definition.driver == MAIL

    @pytest.mark.parametrize(
        ("fields", "reason", "violated"),
        [
            ({"task_id": " "}, "INVALID_IDENTIFIER", "task_id"),
            ({"definition": {"manifest_hash": ""}}, "INVALID_IDENTIFIER", "definition.manifest_hash"),
            ({"definition": {"input": b'{"a":1,"a":2}'}}, "INVALID_JSON", "definition.input/a"),
            (
                {"definition": {"budget": task_pb2.Budget(max_attempts=0)}},
                "INVALID_INTEGER",
                "definition.budget.max_attempts",
            ),
            ({"delay": Duration(seconds=-1)}, "FIELD_INVALID", "delay"),
            ({"start_within": Duration()}, "FIELD_INVALID", "start_within"),
            (
                {"extensions": [task_service_pb2.NewExtension(name="sealwork.x", value=b"1")]},
                "RESERVED_EXTENSION",
                "extensions.sealwork.x",
            ),
            (
                {"extensions": [task_service_pb2.NewExtension(name="x", value=b"1")] * 2},
                "FIELD_INVALID",
                "extensions[1].name",
            ),
        ],
    )
    async def test_what_is_refused(
        self, service: DurableUnderTest, fields: dict[str, object], reason: str, violated: str
    ) -> None:
        refusal = await service.party("alice").refused("CreateTask", creation(**{"task_id": "task"} | fields))  # type: ignore[arg-type]

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, reason)
        assert refusal.fields == (violated,)

    async def test_a_delay(self, service: DurableUnderTest) -> None:
        answer = await service.create(delay=Duration(seconds=5))

        assert list(answer.task.conditions) == [task_pb2.TASK_CONDITION_NOT_BEFORE]
        refused = await service.call("worker", "ClaimTask", task_id="task", claim_id="c", worker_id="w")
        assert refused.not_claimable.retry_after.ToMilliseconds() == 5_000
        await service.pass_time(5_000)
        assert (await service.claim()).fence == 1

    async def test_a_task_that_nobody_claims_in_time_is_cancelled(self, service: DurableUnderTest) -> None:
        await service.create(start_within=Duration(seconds=10))
        await service.pass_time(10_000)

        async def canceled() -> bool:
            return (await service.task()).state == task_pb2.TASK_STATE_CANCELED

        # Written down when it is due, on a file by another thread.
        await eventually(canceled)


class TestReading:
    async def test_views(self, service: DurableUnderTest) -> None:
        await service.running()
        public = (await service.call("alice", "GetTask", task_id="task")).task
        owner = (await service.call("alice", "GetTask", task_id="task", view=task_pb2.TASK_VIEW_OWNER)).task
        worker = (
            await service.call("worker", "GetTask", task_id="task", view=task_pb2.TASK_VIEW_WORKER)
        ).task

        assert not public.HasField("definition")
        assert owner.HasField("definition")
        assert not owner.HasField("lease")
        assert (worker.lease.worker_id, worker.lease.fence) == ("worker-1", 1)
        assert worker.lease.remaining.ToMilliseconds() == 60_000
        assert [attempt.worker_id for attempt in worker.attempts] == ["worker-1"]

    async def test_the_worker_view_is_not_for_submitters(self, service: DurableUnderTest) -> None:
        await service.create()
        refusal = await service.party("alice").refused(
            "GetTask", task_id="task", view=task_pb2.TASK_VIEW_WORKER
        )

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "ROLE_NOT_ALLOWED")

    async def test_a_read_mask(self, service: DurableUnderTest) -> None:
        await service.create()
        answer = await service.call(
            "alice", "GetTask", task_id="task", read_mask=FieldMask(paths=["task_id", "definition"])
        )
        refusal = await service.party("alice").refused(
            "GetTask", task_id="task", read_mask=FieldMask(paths=["secrets"])
        )

        assert answer.task == task_pb2.Task(task_id="task")
        assert refusal.fields == ("read_mask.paths[0]",)

    async def test_what_a_worker_reads_is_of_its_drivers(self, service: DurableUnderTest) -> None:
        await service.create()
        refusal = await service.party("painter").refused("GetTask", task_id="task")

        assert refusal.reason == "TASK_NOT_FOUND"


class TestListing:
    async def names(self, service: DurableUnderTest, caller: str, **fields: object) -> list[str]:
        answer = await service.call(caller, "ListTasks", **fields)
        return [task.task_id for task in answer.tasks]

    async def test_pages(self, service: DurableUnderTest) -> None:
        for number in range(5):
            await service.create(f"task-{number}")
            await service.pass_time(1)
        first = await service.call("alice", "ListTasks", page_size=2)
        second = await service.call("alice", "ListTasks", page_size=2, page_token=first.next_page_token)
        last = await service.call("alice", "ListTasks", page_size=2, page_token=second.next_page_token)

        assert [task.task_id for task in first.tasks] == ["task-4", "task-3"]
        assert [task.task_id for task in second.tasks] == ["task-2", "task-1"]
        assert [task.task_id for task in last.tasks] == ["task-0"]
        assert last.next_page_token == ""
        assert first.resume_token == second.resume_token == last.resume_token

    async def test_a_full_last_page_has_no_next(self, service: DurableUnderTest) -> None:
        await service.create("one")
        await service.create("two")

        assert (await service.call("alice", "ListTasks", page_size=2)).next_page_token == ""

    async def test_a_token_is_good_for_its_caller_and_filter_alone(self, service: DurableUnderTest) -> None:
        await service.create("one")
        await service.create("two")
        token = (await service.call("operator", "ListTasks", page_size=1)).next_page_token
        refusals = [
            await service.party("alice").refused("ListTasks", page_token=token),
            await service.party("operator").refused(
                "ListTasks", page_token=token, filter=task_pb2.TaskFilter(session_id="session")
            ),
            await service.party("operator").refused("ListTasks", page_token="AAAA"),
            await service.party("operator").refused("ListTasks", page_token="no base64!"),
        ]

        assert {refusal.reason for refusal in refusals} == {"PAGE_TOKEN_INVALID"}

    async def test_who_finds_what(self, service: DurableUnderTest) -> None:
        await service.create("of-alice")
        await service.create("of-bob", caller="bob")
        await service.create("to-paint", definition={"driver": task_pb2.DriverRef(id="paint", version=1)})

        assert set(await self.names(service, "alice")) == {"of-alice", "to-paint"}
        assert await self.names(service, "bob") == ["of-bob"]
        assert set(await self.names(service, "worker")) == {"of-alice", "of-bob"}
        assert await self.names(service, "painter") == ["to-paint"]
        assert len(await self.names(service, "operator")) == 3
        assert await self.names(service, "eve") == []

    async def test_filters(self, service: DurableUnderTest) -> None:
        await service.running("running")
        await service.create("queued")
        state = task_pb2.TaskFilter(states=[task_pb2.TASK_STATE_RUNNING])
        claimable = task_pb2.TaskFilter(conditions=[task_pb2.TASK_CONDITION_CLAIMABLE])
        leased = task_pb2.TaskFilter(conditions=[task_pb2.TASK_CONDITION_LEASED])
        driver = task_pb2.TaskFilter(driver=task_pb2.DriverRef(id="mail"))
        other = task_pb2.TaskFilter(driver=task_pb2.DriverRef(id="mail", version=2))

        assert await self.names(service, "alice", filter=state) == ["running"]
        assert await self.names(service, "alice", filter=claimable) == ["queued"]
        assert await self.names(service, "alice", filter=leased) == ["running"]
        assert len(await self.names(service, "alice", filter=driver)) == 2
        assert await self.names(service, "alice", filter=other) == []


class TestCancelling:
    async def test_a_task_that_nobody_holds_ends_at_once(self, service: DurableUnderTest) -> None:
        await service.create()
        answer = await service.call("alice", "CancelTask", task_id="task", reason="no need")
        again = await service.call("alice", "CancelTask", task_id="task", reason="other")

        assert answer.status.state == again.status.state == task_pb2.TASK_STATE_CANCELED
        task = (await service.call("alice", "GetTask", task_id="task", view=task_pb2.TASK_VIEW_OWNER)).task
        assert task.cancel_reason == "no need"

    async def test_a_held_one_waits_for_its_holder(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        answer = await service.call("operator", "CancelTask", task_id="task")
        verdict = (await service.call("worker", "RenewLeases", leases=[lease])).verdicts[0]
        ended = await service.call("worker", "AcknowledgeCancellation", lease=lease)

        assert answer.status.state == task_pb2.TASK_STATE_CANCEL_REQUESTED
        assert verdict.state == 2
        assert ended.status.state == task_pb2.TASK_STATE_CANCELED


class TestWaiting:
    async def test_no_wait(self, service: DurableUnderTest) -> None:
        await service.create()

        assert not (await service.call("alice", "WaitTask", task_id="task")).met

    async def test_the_end_is_told_when_it_comes(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        waiting = asyncio.create_task(
            service.call("alice", "WaitTask", task_id="task", wait=Duration(seconds=10))
        )
        await service.call("worker", "CompleteTask", lease=lease, result_ref="result")

        answer = await waiting
        assert answer.met
        assert answer.task.state == task_pb2.TASK_STATE_COMPLETED

    async def test_a_wait_in_vain(self, service: DurableUnderTest) -> None:
        await service.create()
        waiting = asyncio.create_task(
            service.call("alice", "WaitTask", task_id="task", wait=Duration(seconds=10))
        )
        while not waiting.done():
            await service.pass_time(1_000)

        assert not waiting.result().met

    async def test_any_change(self, service: DurableUnderTest) -> None:
        await service.create()
        changed = task_service_pb2.WAIT_CONDITION_CHANGED
        early = await service.call("alice", "WaitTask", task_id="task", condition=changed)
        await service.claim()
        late = await service.call("alice", "WaitTask", task_id="task", condition=changed)

        assert (early.met, late.met) == (False, True)

    async def test_a_wait_that_is_too_long(self, service: DurableUnderTest) -> None:
        refusal = await service.party("alice").refused("WaitTask", task_id="task", wait=Duration(seconds=11))

        assert refusal.fields == ("wait",)
