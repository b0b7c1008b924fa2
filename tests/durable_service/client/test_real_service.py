"""The SDK against the service itself."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from durable_service.client import (
    ActionInput,
    ActionRejectedError,
    ApprovalNeed,
    ApprovalState,
    BlockingClient,
    Condition,
    DurableError,
    NotClaimed,
    RunEnd,
    TaskContext,
    TaskFilter,
    TaskState,
    View,
    Worker,
    Yielded,
)
from durable_service.client.connectors import Found
from durable_service.client.record_reader import Event, Gap
from service_common.clocks import SystemClock
from tests.durable_service.client.real_service import key_of, mail, never, real_service
from tests.durable_service.client.test_worker_actions import Post
from tests.harness.fault_proxy import fault_proxy
from tests.harness.waiting import eventually

SEND = ActionInput("send", "inbox", {"text": "hello"})
HOUR_MS = 3_600_000


def in_an_hour() -> int:
    return SystemClock().now_ms() + HOUR_MS


async def test_a_task_is_created_executed_and_waited_for() -> None:
    async def handler(context: TaskContext) -> str:
        assert context.input == {"to": "bob"}
        await context.records.append("mail.written", {"words": 3})
        return "mail:1"

    async with real_service() as service:
        client = await service.client()
        await service.worker(handler)
        task, created = await client.tasks.create(mail(input={"to": "bob"}))
        assert created
        assert task.state in {TaskState.QUEUED, TaskState.RUNNING}
        ended, met = await client.tasks.wait("t-1")
        assert met
        assert (ended.state, ended.result_ref) == (TaskState.COMPLETED, "mail:1")
        assert (await client.tasks.create(mail(input={"to": "bob"})))[1] is False
        with pytest.raises(DurableError, match="DEFINITION_MISMATCH"):
            await client.tasks.create(mail(input={"to": "eve"}))
        entries = [entry async for entry in client.records.follow("t-1")]
        written = [each for each in entries if isinstance(each, Event) and each.type == "mail.written"]
        assert [each.data for each in written] == [{"words": 3}]
        assert not any(isinstance(each, Gap) for each in entries)


async def test_an_action_waits_for_its_approval_and_happens_once() -> None:
    post = Post("mail:2")

    async def handler(context: TaskContext) -> str:
        need = ApprovalNeed("carol", in_an_hour())
        return await context.execute(replace(SEND, approval=need), post)

    async with real_service() as service:
        client, carol = await service.client(), await service.client("carol")
        worker = await service.worker(handler)
        watching = aiter(carol.approvals.watch())
        await client.tasks.create(mail())
        approval = await anext(watching)
        assert (approval.task_id, approval.action_id, approval.state) == (
            "t-1",
            "send",
            ApprovalState.PENDING,
        )
        assert (await worker.report()).end is RunEnd.SUSPENDED
        assert post.sent == []
        details = await carol.approvals.get("t-1", approval.id)
        assert (details.action.args, details.action.destination, details.owner) == (
            {"text": "hello"},
            "inbox",
            "alice",
        )
        assert [each.id async for each in carol.approvals.pending()] == [approval.id]
        decided = await carol.approvals.decide(approval, approved=True, note="fine")
        assert (decided.state, decided.note) == (ApprovalState.APPROVED, "fine")
        ended, _ = await client.tasks.wait("t-1")
        assert (ended.state, ended.result_ref) == (TaskState.COMPLETED, "mail:2")
        assert (await worker.report(1)).end is RunEnd.COMPLETED
        assert len(post.sent) == 1
        await watching.aclose()  # type: ignore[attr-defined]


async def test_a_denied_action_does_not_happen() -> None:
    post = Post()

    async def handler(context: TaskContext) -> str:
        try:
            need = ApprovalNeed("carol", in_an_hour())
            return await context.execute(replace(SEND, approval=need), post)
        except ActionRejectedError as error:
            return f"not sent: {error.rejection.value}"

    async with real_service() as service:
        client, carol = await service.client(), await service.client("carol")
        await service.worker(handler)
        await client.tasks.create(mail())
        waiting, met = await client.tasks.wait("t-1", or_approval=True)
        assert met
        assert Condition.APPROVAL_PENDING in waiting.conditions
        (approval,) = [each async for each in carol.approvals.pending("t-1")]
        await carol.approvals.decide(approval, approved=False)
        ended, _ = await client.tasks.wait("t-1")
        assert ended.result_ref == "not sent: denied"
        assert post.sent == []


async def test_a_cancel_reaches_the_handler_and_the_effect_under_way_is_confirmed() -> None:
    post = Post()
    go = post.go = asyncio.Event()

    async def handler(context: TaskContext) -> str:
        return await context.execute(SEND, post)

    async with real_service() as service:
        client = await service.client()
        worker = await service.worker(handler)
        await client.tasks.create(mail())
        await post.entered.wait()
        asked = await client.tasks.cancel("t-1", "changed my mind")
        assert asked.state is TaskState.CANCEL_REQUESTED
        held = next(iter(worker.worker._held.values()))
        await held.signal.wait()
        go.set()
        ended, _ = await client.tasks.wait("t-1")
        assert (ended.state, ended.cancel_reason) == (TaskState.CANCELED, "changed my mind")
        types = [each.type for each in await client.records.events("t-1")]
        assert "action.confirmed" in types


async def test_records_and_reservations_are_found_again_when_the_handler_runs_again() -> None:
    content = bytes(range(256)) * 600
    runs: list[Any] = []

    async def handler(context: TaskContext) -> Any:
        usage = await context.reserve(tokens=100, cost_micros=7)
        before = await context.records.snapshot("step-1")
        artifact = await context.records.artifact("letter", content, media_type="text/plain")
        await context.records.append("step.done", event_id="step-1")
        runs.append((usage.reserved_tokens, usage.reserved_cost_micros, before, artifact.size_bytes))
        if before is None:
            await context.records.checkpoint("step-1", {"at": 5})
            return Yielded(1, "a moment")
        assert await context.records.read_artifact("letter") == content
        return None

    async with real_service() as service:
        client = await service.client()
        worker = await service.worker(handler)
        await client.tasks.create(mail())
        assert [(await worker.report(number)).end for number in (0, 1)] == [RunEnd.YIELDED, RunEnd.COMPLETED]
        assert runs == [(100, 7, None, 153_600), (100, 7, {"at": 5}, 153_600)]
        assert await client.records.artifact("t-1", "letter") == content
        assert await client.records.snapshot("t-1", "step-1") == {"at": 5}
        task = await client.tasks.get("t-1")
        assert task.usage is not None
        assert (task.usage.attempts, task.usage.reserved_tokens) == (2, 100)
        types = [each.type for each in await client.records.events("t-1")]
        assert types.count("step.done") == 1


async def test_an_effect_of_unknown_outcome_is_settled_by_evidence_and_never_sent_again() -> None:
    post = Post(RuntimeError("reset by peer"))

    async def handler(context: TaskContext) -> str:
        return await context.execute(SEND, post)

    async with real_service() as service:
        client, operator = await service.client(), await service.client("operator")
        worker = await service.worker(handler)
        await client.tasks.create(mail())
        assert (await worker.report()).end is RunEnd.RECOVERY_REQUIRED
        stuck = await operator.tasks.get("t-1", View.WORKER)
        assert Condition.RECOVERY_REQUIRED in stuck.conditions
        assert stuck.open_action_ids == ("send",)
        refused = await worker.worker.run_task("t-1")
        assert refused == NotClaimed("t-1", "recovery-only", action_ids=("send",))
        async with Worker(operator, {}) as recovering:
            found = Post(finding=Found("mail:9", "receipt:9"))
            (settled,) = await recovering.recover("t-1", [found])  # type: ignore[misc]
            assert settled.result_ref == "mail:9"
        ended, _ = await client.tasks.wait("t-1")
        assert (ended.state, ended.result_ref) == (TaskState.COMPLETED, "mail:9")
        assert len(post.sent) == 1


async def test_a_worker_with_its_connectors_settles_what_stands_still_by_itself() -> None:
    post = Post(RuntimeError("reset by peer"), finding=Found("mail:9", "receipt:9"))

    async def handler(context: TaskContext) -> str:
        return await context.execute(SEND, post)

    async with real_service() as service:
        client = await service.client()
        worker = await service.worker(handler, connectors=[post])
        await client.tasks.create(mail())
        ended, met = await client.tasks.wait("t-1", at_most_ms=10_000)
        assert met
        assert (ended.state, ended.result_ref) == (TaskState.COMPLETED, "mail:9")
        assert [(await worker.report(number)).end for number in (0, 1)] == [
            RunEnd.RECOVERY_REQUIRED,
            RunEnd.COMPLETED,
        ]
        assert len(post.sent) == 1


async def test_a_look_up_that_settles_nothing_leaves_the_task_for_a_person() -> None:
    post = Post(RuntimeError("reset by peer"))

    async def handler(context: TaskContext) -> str:
        return await context.execute(SEND, post)

    async with real_service() as service:
        client = await service.client()
        worker = await service.worker(handler, connectors=[post])
        await client.tasks.create(mail())
        assert (await worker.report()).end is RunEnd.RECOVERY_REQUIRED
        following = client.records.follow("t-1", types=["action.unknown", "lease.released"])
        kept = [await anext(following) for _ in range(3)]
        assert [each.type for each in kept if isinstance(each, Event)].count("lease.released") >= 1
        await following.aclose()  # type: ignore[attr-defined]
        assert len(post.sent) == 1
        assert (await client.tasks.get("t-1")).state is TaskState.RUNNING


async def test_a_worker_that_is_cut_off_stops_by_itself_and_another_takes_over() -> None:
    entered = asyncio.Event()

    async def cut_off(context: TaskContext) -> None:
        entered.set()
        await asyncio.sleep(HOUR_MS)

    async def taking_over(_: TaskContext) -> str:
        return "by the other"

    async with real_service(lease_ms=3_000) as service:
        host, _, port = service.address.rpartition(":")
        async with fault_proxy(host, int(port)) as proxy:
            client = await service.client()
            first = await service.worker(cut_off, address=proxy.address)
            await client.tasks.create(mail())
            await entered.wait()
            proxy.cut()
            assert (await first.report()).end is RunEnd.LEASE_LOST
            await service.worker(taking_over, name="other-worker")
            # By a hint when the lease is over, long before the other would ask by itself.
            ended, met = await client.tasks.wait("t-1", at_most_ms=10_000)
            assert met
            assert ended.result_ref == "by the other"
            assert (await client.tasks.get("t-1")).usage.attempts == 2  # type: ignore[union-attr]


async def test_a_lost_connection_is_no_lost_lease() -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    async def handler(_: TaskContext) -> str:
        entered.set()
        await go.wait()
        return "still mine"

    async with real_service() as service:
        host, _, port = service.address.rpartition(":")
        async with fault_proxy(host, int(port)) as proxy:
            client = await service.client()
            worker = await service.worker(handler, address=proxy.address)
            await client.tasks.create(mail())
            await entered.wait()
            await proxy.reset_all()
            go.set()
            assert (await worker.report()).end is RunEnd.COMPLETED
            ended, _ = await client.tasks.wait("t-1")
            assert ended.result_ref == "still mine"
            assert (ended.usage and ended.usage.attempts) == 1


async def test_tasks_are_listed_filtered_and_watched() -> None:
    async with real_service() as service:
        client = await service.client()
        watching = aiter(client.tasks.watch())
        first = asyncio.ensure_future(anext(watching))
        for number in range(3):
            await client.tasks.create(mail(f"t-{number}", session_id=f"s-{number % 2}"))
        # A watch begins where it is opened, which may be after some of these.
        again = 0
        while not first.done():
            await client.tasks.create(mail(f"again-{again}"))
            again += 1
            await eventually(lambda: True)
        assert (await first).state is TaskState.QUEUED
        listed = [each.id async for each in client.tasks.list(TaskFilter(session_id="s-0"))]
        assert listed == ["t-2", "t-0"]
        assert [each.id async for each in client.tasks.list(limit=1)] != []
        canceled = await client.tasks.cancel("t-1")
        assert (canceled.state, canceled.ended) == (TaskState.CANCELED, True)
        assert [each.id async for each in client.tasks.list(TaskFilter(states=[TaskState.CANCELED]))] == [
            "t-1"
        ]
        await watching.aclose()  # type: ignore[attr-defined]


async def test_another_tenant_is_told_nothing() -> None:
    async with real_service() as service:
        client, eve = await service.client(), await service.client("eve")
        await client.tasks.create(mail())
        with pytest.raises(DurableError) as refused:
            await eve.tasks.get("t-1")
        assert refused.value.reason == "TASK_NOT_FOUND"
        assert refused.value.advice == "check the task id, and that this principal may see it"


async def test_a_handler_writes_the_slots_of_its_task() -> None:
    async def handler(context: TaskContext) -> None:
        assert context.task.extensions == {"stage": "new"}
        assert await context.extensions.put("stage", {"step": 1}) == 2
        await context.extensions.put("note", None)
        await context.extensions.remove("note")
        await context.extensions.remove("note")

    async with real_service() as service:
        client, operator = await service.client(), await service.client("operator")
        worker = await service.worker(handler)
        await client.tasks.create(mail(extensions={"stage": "new"}))
        assert (await worker.report()).end is RunEnd.COMPLETED
        assert (await operator.tasks.get("t-1", View.WORKER)).extensions == {"stage": {"step": 1}}


async def test_counts_and_purges_are_for_those_who_run_the_service() -> None:
    async with real_service() as service:
        client, operator, admin = [await service.client(name) for name in ("alice", "operator", "admin")]
        await client.tasks.create(mail())
        stats = await operator.operations.stats()
        assert (stats.tasks, stats.claimable_tasks, stats.store) == ({TaskState.QUEUED: 1}, 1, "memory")
        async for stats in operator.operations.watch_stats(200):
            assert stats.claimable_tasks == 1
            break
        await client.tasks.cancel("t-1")
        # It ended too recently.
        assert await admin.operations.purge(["t-1"], dry_run=True) == ([], False)


async def test_a_worker_of_another_role_is_refused_for_good() -> None:
    async with real_service() as service:
        worker = Worker(await service.client("alice"), {"mail@1": never})
        with pytest.raises(DurableError) as refused:
            await worker.run()
        assert refused.value.reason == "ROLE_NOT_ALLOWED"


async def test_scripts_create_wait_and_decide_without_an_event_loop() -> None:
    async def handler(context: TaskContext) -> str:
        return await context.execute(replace(SEND, approval=ApprovalNeed("carol", in_an_hour())), Post())

    def script(address: str) -> tuple[str | None, list[str]]:
        with (
            BlockingClient(address, principal_id="alice", key=key_of("alice")) as alice,
            BlockingClient(address, principal_id="carol", key=key_of("carol")) as carol,
        ):
            alice.create(mail())
            alice.wait("t-1", or_approval=True)
            for approval in carol.pending_approvals():
                carol.decide(approval, approved=True)
            return alice.wait("t-1").result_ref, [task.id for task in alice.list()]

    async with real_service() as service:
        await service.worker(handler)
        assert await asyncio.to_thread(script, service.address) == ("posted:1", ["t-1"])
