"""The stream of a worker, frame by frame."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from durable_service.principals import Principals
from sealwork.durable.v1 import lease_pb2, task_pb2, worker_push_pb2, worker_service_pb2
from sealwork.session.v1 import session_pb2
from tests.durable_service.durable_fixture import MAIL, PRINCIPALS, DurableUnderTest, signer_of
from tests.durable_service.planes.every_method import Scene, begin, prepare
from tests.durable_service.raw_client import Refusal, WorkerStream

Open = Callable[..., WorkerStream]


@pytest.fixture
async def open_(service: DurableUnderTest) -> AsyncIterator[Open]:
    """Opens streams that are closed at the end."""
    streams: list[WorkerStream] = []

    def opened(name: str = "worker") -> WorkerStream:
        streams.append(service.party(name).open())
        return streams[-1]

    yield opened
    for stream in streams:
        await stream.close()


class TestHello:
    async def test_welcome_tells_the_limits(self, open_: Open) -> None:
        stream = open_()
        await stream.greet()
        welcome = await stream.next("welcome")

        assert welcome.limits.lease.ToMilliseconds() == 60_000
        assert welcome.limits.leases_per_frame == 500
        assert welcome.server_instance == "durable-test"
        assert welcome.session_epoch > 0
        assert not (await stream.next("verdicts")).verdicts

    async def test_another_key(self, open_: Open, service: DurableUnderTest) -> None:
        stream = open_()
        stream.party.signer = signer_of("somebody")
        await stream.greet()

        assert (await stream.refusal()).reason == "BAD_SIGNATURE"

    async def test_who_is_no_worker(self, open_: Open) -> None:
        stream = open_("alice")
        await stream.greet()

        refusal = await stream.refusal()
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "ROLE_NOT_ALLOWED")

    async def test_a_driver_that_is_not_its_own(self, open_: Open) -> None:
        stream = open_("painter")
        await stream.greet(drivers=[MAIL])

        assert (await stream.refusal()).reason == "ROLE_NOT_ALLOWED"

    async def test_faults_of_a_hello(self, open_: Open) -> None:
        stream = open_()
        await stream.greet(worker_id="", drivers=[task_pb2.DriverRef(id="mail")])

        assert (await stream.refusal()).fields == ("worker_id", "drivers[0].version")

    async def test_a_newer_stream_of_the_worker_wins(self, open_: Open) -> None:
        older, newer = open_(), open_()
        await older.connect()
        await newer.connect()

        assert (await older.refusal()).reason == "SESSION_SUPERSEDED"
        await newer.settle()

    async def test_two_workers_of_one_principal(self, open_: Open) -> None:
        one, two = open_(), open_()
        await one.connect(worker_id="worker-1")
        await two.connect(worker_id="worker-2")

        await one.settle()
        await two.settle()

    async def test_two_processes_with_one_worker_id(self, open_: Open) -> None:
        for number in range(4):
            await open_().connect(process_id=f"process-{number}")
        last = open_()
        await last.greet(process_id="process-5")

        assert (await last.refusal()).reason == "WORKER_ID_CONFLICT"


class TestInventory:
    async def test_a_verdict_for_each_lease(self, service: DurableUnderTest, open_: Open) -> None:
        held = await service.running("held")
        canceled = await service.running("canceled")
        await service.call("alice", "CancelTask", task_id="canceled")
        done = await service.running("done")
        await service.call("worker", "CompleteTask", lease=done)
        unknown = lease_pb2.LeaseRef(task_id="unknown", worker_id="worker-1", fence=1)
        await service.pass_time(10_000)

        answer = await open_().connect(inventory={"leases": [held, canceled, done, unknown]})

        assert [verdict.lease.task_id for verdict in answer.verdicts] == [
            "held",
            "canceled",
            "done",
            "unknown",
        ]
        assert [verdict.state for verdict in answer.verdicts] == [
            lease_pb2.LEASE_STATE_ACTIVE,
            lease_pb2.LEASE_STATE_CANCEL_REQUESTED,
            lease_pb2.LEASE_STATE_COMPLETED,
            lease_pb2.LEASE_STATE_LOST,
        ]
        # To have named it is to have renewed it.
        assert answer.verdicts[0].remaining.ToMilliseconds() == 60_000

    async def test_what_it_does_not_name_is_taken_back(self, service: DurableUnderTest, open_: Open) -> None:
        lease = await service.running()
        await service.pass_time(1)
        await open_().connect()
        (verdict,) = (await service.call("worker", "RenewLeases", leases=[lease])).verdicts

        assert verdict.end_reason == lease_pb2.LEASE_END_REASON_TAKEN_BACK
        task = await service.task()
        assert not task.HasField("lease")
        assert task_pb2.TASK_CONDITION_CLAIMABLE in task.conditions

    async def test_what_another_worker_holds_stays(self, service: DurableUnderTest, open_: Open) -> None:
        await service.running()
        await service.pass_time(1)
        await open_().connect(worker_id="worker-2")
        await open_("other-worker").connect(worker_id="worker-1")

        assert (await service.task()).HasField("lease")

    async def test_a_claim_that_crossed_the_hello_stays(self, service: DurableUnderTest, open_: Open) -> None:
        await service.create()
        stream = open_()
        challenge = await stream.next("challenge")
        await service.claim()
        stream.items.append(worker_service_pb2.WorkerServerItem(challenge=challenge))
        await stream.connect()

        assert (await service.task()).HasField("lease")

    async def test_an_inventory_in_parts(self, service: DurableUnderTest, open_: Open) -> None:
        one, two = await service.running("one"), await service.running("two")
        await service.pass_time(1)
        stream = open_()
        await stream.greet(inventory={"leases": [one], "more": True})
        await stream.next("welcome")
        await stream.send(inventory=worker_service_pb2.LeaseInventory(leases=[two]))

        verdicts = (await stream.next("verdicts")).verdicts
        assert [verdict.lease.task_id for verdict in verdicts] == ["one", "two"]
        assert (await service.task("one")).HasField("lease")

    async def test_the_end_of_a_stream_costs_no_lease(self, service: DurableUnderTest, open_: Open) -> None:
        lease = await service.running()
        stream = open_()
        await stream.connect(inventory={"leases": [lease]})
        await stream.send(goodbye=session_pb2.Goodbye())
        await stream.close()

        assert (await service.task()).HasField("lease")


class TestHints:
    async def test_work_that_waits_at_the_hello(self, service: DurableUnderTest, open_: Open) -> None:
        await service.create("one")
        await service.create("two")
        stream = open_()
        await stream.connect(drivers=[MAIL])

        hint = await stream.next("tasks_available")
        assert (hint.driver, hint.count) == (MAIL, 2)

    async def test_new_work(self, service: DurableUnderTest, open_: Open) -> None:
        stream = open_()
        await stream.connect(drivers=[MAIL])
        await service.create()

        assert (await stream.next("tasks_available")).driver == MAIL

    async def test_one_task_is_hinted_at_one_stream(self, service: DurableUnderTest, open_: Open) -> None:
        streams = [open_(), open_()]
        for number, stream in enumerate(streams):
            await stream.connect(drivers=[MAIL], worker_id=f"worker-{number}")
        await service.create("one")
        await service.create("two")

        for stream in streams:
            await stream.next("tasks_available")
            assert not [item for item in await stream.settle() if item.HasField("tasks_available")]

    async def test_without_credit_there_are_none(self, service: DurableUnderTest, open_: Open) -> None:
        stream = open_()
        await stream.connect(drivers=[MAIL], limit=0)
        await service.create()
        assert not await stream.settle()

        await stream.send(credit=session_pb2.Credit(limit=1))
        await stream.next("tasks_available")
        await service.create("another")
        assert not await stream.settle()

    async def test_of_other_drivers_there_are_none(self, service: DurableUnderTest, open_: Open) -> None:
        stream = open_()
        await stream.connect(drivers=[task_pb2.DriverRef(id="mail", version=2)])
        await service.create()
        assert not await stream.settle()

        await stream.send(drivers_changed=worker_service_pb2.DriversChanged(drivers=[MAIL]))
        assert (await stream.next("tasks_available")).count == 1

    async def test_draining_ends_them(self, service: DurableUnderTest, open_: Open) -> None:
        stream = open_()
        await stream.connect(drivers=[MAIL])
        await stream.send(draining=worker_service_pb2.WorkerDraining())
        await stream.settle()
        await service.create()

        assert not await stream.settle()

    async def test_a_task_that_was_released(self, service: DurableUnderTest, open_: Open) -> None:
        lease = await service.running()
        stream = open_()
        await stream.connect(drivers=[MAIL], worker_id="worker-2")
        await service.call("worker", "ReleaseTask", lease=lease)

        assert (await stream.next("tasks_available")).driver == MAIL


class TestLeases:
    async def test_renewal(self, service: DurableUnderTest, open_: Open) -> None:
        lease = await service.running()
        stream = open_()
        await stream.connect(inventory={"leases": [lease]})
        await service.pass_time(10_000)
        # The worker of the hello need not be named.
        short = lease_pb2.LeaseRef(task_id="task", fence=lease.fence)
        await stream.send(renew=worker_service_pb2.RenewTasks(renewal_id=7, leases=[short]))

        answer = await stream.next("verdicts")
        assert (answer.renewal_id, answer.renewed_for.ToMilliseconds()) == (7, 60_000)
        assert not answer.verdicts
        assert (await service.task()).lease.remaining.ToMilliseconds() == 60_000

    async def test_a_cancel_comes_at_once_and_again_until_it_is_known(
        self, service: DurableUnderTest, open_: Open
    ) -> None:
        lease = await service.running()
        stream = open_()
        await stream.connect(inventory={"leases": [lease]})
        await service.call("alice", "CancelTask", task_id="task")

        (pushed,) = (await stream.next("verdicts")).verdicts
        assert (pushed.lease, pushed.state) == (lease, lease_pb2.LEASE_STATE_CANCEL_REQUESTED)
        await stream.send(renew=worker_service_pb2.RenewTasks(renewal_id=1, leases=[lease]))
        (again,) = (await stream.next("verdicts")).verdicts
        assert again.state == lease_pb2.LEASE_STATE_CANCEL_REQUESTED
        await stream.send(cancel_ack=worker_service_pb2.TaskCancelAck(leases=[lease]))
        await stream.send(renew=worker_service_pb2.RenewTasks(renewal_id=2, leases=[lease]))
        assert not (await stream.next("verdicts")).verdicts

    async def test_the_loss_of_a_lease_is_told_when_it_runs_out(
        self, service: DurableUnderTest, open_: Open
    ) -> None:
        lease = await service.running()
        stream = open_()
        await stream.connect(inventory={"leases": [lease]})
        for _ in range(6):
            await service.pass_time(10_000)
            await stream.settle()

        (lost,) = (await stream.next("verdicts")).verdicts
        assert (lost.lease, lost.state) == (lease, lease_pb2.LEASE_STATE_LOST)
        assert lost.end_reason == lease_pb2.LEASE_END_REASON_EXPIRED

    async def test_its_own_acts_are_no_news(self, service: DurableUnderTest, open_: Open) -> None:
        lease = await service.running()
        stream = open_()
        await stream.connect(inventory={"leases": [lease]})
        await service.call("worker", "CompleteTask", lease=lease)

        assert not await stream.settle()

    async def test_a_bad_renewal_does_not_end_the_stream(self, open_: Open) -> None:
        stream = open_()
        await stream.connect()
        await stream.send(renew=worker_service_pb2.RenewTasks(renewal_id=1))

        error = await stream.next("frame_error")
        assert Refusal.of_status(error.status).reason == "FIELD_INVALID"
        await stream.settle()


class TestWakes:
    async def test_an_approval_that_was_decided(self, service: DurableUnderTest, open_: Open) -> None:
        lease = await service.running()
        asked = await service.call("worker", "PrepareAction", prepare(lease, clock=service.clock))
        await service.call("worker", "BeginDispatch", begin(lease))
        await service.call("worker", "ReleaseTask", lease=lease)
        stream = open_()
        await stream.connect(drivers=[MAIL])
        await service.call(
            "carol",
            "DecideApproval",
            task_id="task",
            approval_id=asked.approval.approval_id,
            prepared_hash=asked.action.prepared_hash,
            decision=1,
        )

        woken = await stream.next("task_woken")
        assert (woken.task_id, woken.driver) == ("task", MAIL)
        assert woken.reason == worker_push_pb2.WAKE_REASON_APPROVAL_DECIDED
        assert (await stream.next("tasks_available")).driver == MAIL

    async def test_a_pause_that_is_over(self, service: DurableUnderTest, open_: Open) -> None:
        lease = await service.running()
        stream = open_()
        await stream.connect(drivers=[MAIL], inventory={"leases": [lease]})
        await service.call("worker", "YieldTask", lease=lease, delay=Duration(seconds=5))
        assert not await stream.settle()
        await service.pass_time(5_000)

        assert (await stream.next("task_woken")).reason == worker_push_pb2.WAKE_REASON_TIMER
        assert (await stream.next("tasks_available")).driver == MAIL

    async def test_an_outcome_that_was_settled_by_another(
        self, service: DurableUnderTest, open_: Open
    ) -> None:
        scene = await Scene(service).build()
        await service.pass_time(60_000)
        stream = open_()
        await stream.connect()
        claimed = await service.call(
            "operator", "ClaimForRecovery", task_id="task", claim_id="r", worker_id="desk"
        )
        lease = lease_pb2.LeaseRef(task_id="task", worker_id="desk", fence=claimed.claimed.lease.fence)
        for action_id in ("sent", "lost"):
            await service.call(
                "operator",
                "ReconcileAction",
                lease=lease,
                action_id=action_id,
                prepared_hash=scene.prepared_hash,
                connector_version="fixture@1",
                finding=2,
                evidence_ref="proof",
            )

        assert (await stream.next("task_woken")).reason == worker_push_pb2.WAKE_REASON_RECONCILED


class TestCalls:
    async def test_the_life_of_a_task_on_the_stream(self, service: DurableUnderTest, open_: Open) -> None:
        lease = await service.running()
        stream = open_()
        await stream.connect(inventory={"leases": [lease]})
        short = lease_pb2.LeaseRef(task_id="task", fence=lease.fence)

        reserved = await stream.ask(
            reserve_budget=worker_service_pb2.ReserveBudgetRequest(lease=short, reservation_id="r", tokens=3)
        )
        prepared = await stream.ask(prepare_action=prepare(short))
        begun = await stream.ask(begin_dispatch=begin(short))
        confirmed = await stream.ask(
            confirm_action={
                "lease": short, "action_id": "send", "dispatch_id": "dispatch-1", "result_ref": "done",
            }
        )  # fmt: skip
        appended = await stream.ask(
            append_event={"lease": short, "event_id": "e", "type": "note", "data": b"1"}
        )
        completed = await stream.ask(complete_task={"lease": short})

        assert reserved.reserve_budget.usage.reserved_tokens == 3
        assert prepared.prepare_action.action.args == b'{"message":"hello"}'
        assert begun.begin_dispatch.HasField("dispatch")
        assert confirmed.confirm_action.action_state == 5
        assert appended.append_event.sequence > 0
        assert completed.complete_task.status.state == task_pb2.TASK_STATE_COMPLETED

    async def test_every_call_has_a_twin(self) -> None:
        from durable_service.sessions.worker_calls import METHODS

        arms = {field.name for field in worker_service_pb2.WorkerCall.DESCRIPTOR.oneofs[0].fields}
        assert set(METHODS) == arms

    async def test_an_error_is_a_reply(self, service: DurableUnderTest, open_: Open) -> None:
        stream = open_()
        await stream.connect()
        reply = await stream.ask(complete_task={"lease": lease_pb2.LeaseRef(task_id="nowhere", fence=1)})

        refusal = Refusal.of_status(reply.error)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "TASK_NOT_FOUND")

    async def test_a_large_body_has_to_go_by_unary_call(self, service: DurableUnderTest, open_: Open) -> None:
        lease = await service.running()
        stream = open_()
        await stream.connect(inventory={"leases": [lease]})
        data = b'"' + b"x" * 32_768 + b'"'
        reply = await stream.ask(append_event={"lease": lease, "event_id": "e", "type": "n", "data": data})

        assert Refusal.of_status(reply.error).reason == "BODY_TOO_LARGE_FOR_SESSION"


class TestTheEnd:
    async def with_change(self, service: DurableUnderTest, name: str, **changes: Any) -> None:
        changed = replace(PRINCIPALS.by_id[name], **changes)
        others = [each for each in PRINCIPALS.by_id.values() if each.id != name]
        service.source.replace(Principals.of([*others, changed]))

    async def test_a_principal_that_is_cut_off(self, service: DurableUnderTest, open_: Open) -> None:
        stream, other = open_(), open_("other-worker")
        await stream.connect()
        await other.connect()
        await self.with_change(service, "worker", disabled=True)

        assert (await stream.refusal()).reason == "PRINCIPAL_REVOKED"
        await other.settle()

    async def test_a_key_that_was_replaced(self, service: DurableUnderTest, open_: Open) -> None:
        stream = open_()
        await stream.connect()
        await self.with_change(service, "worker", key=signer_of("new key").public_key)

        assert (await stream.refusal()).reason == "PRINCIPAL_REVOKED"

    async def test_other_drivers_are_judged_at_a_new_stream(
        self, service: DurableUnderTest, open_: Open
    ) -> None:
        stream = open_()
        await stream.connect()
        await self.with_change(service, "worker", drivers=frozenset({"paint"}))

        assert (await stream.refusal()).reason == "SERVER_DRAINING"

    async def test_drain(self, service: DurableUnderTest, open_: Open) -> None:
        stream = open_()
        await stream.connect()
        draining = asyncio.create_task(service.server.streams.drain())
        assert (await stream.next("drain_notice")).reason == session_pb2.DRAIN_REASON_SERVER_SHUTDOWN
        await service.create()
        await stream.send(goodbye=session_pb2.Goodbye())

        await draining
        assert not [item for item in stream.items if item.HasField("tasks_available")]
        assert service.server.metrics.value("durable_streams_ended_total", end="goodbye") == 1

    async def test_silence(self, service: DurableUnderTest, open_: Open) -> None:
        stream = open_()
        await stream.connect()
        for _ in range(2):
            await service.elapse(15_000)
            await stream.next("heartbeat")
        await service.elapse(15_000)

        assert (await stream.refusal()).reason == "SESSION_SILENT"

    async def test_a_second_hello(self, open_: Open) -> None:
        stream = open_()
        await stream.connect()
        await stream.send(hello=session_pb2.SignedHello())

        assert (await stream.refusal()).reason == "PROTOCOL_VIOLATION"
