"""A store that is away, callers that do not read, a process that leaves: what each caller is told."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from durable_service.core.errors import DomainError, Reason
from durable_service.planes.watches import Watch
from durable_service.store.base import StoreFault, StoreUnavailable
from sealwork.durable.v1 import lease_pb2, task_pb2, worker_service_pb2
from service_common.clocks import ManualClock
from service_common.errors import ServiceError
from tests.durable_service.durable_fixture import MAIL, DurableUnderTest, serving
from tests.durable_service.planes.every_method import Scene
from tests.durable_service.raw_client import Refusal
from tests.harness.waiting import eventually


@pytest.fixture
async def service() -> AsyncIterator[DurableUnderTest]:
    async with serving() as running:
        yield running


def fail(service: DurableUnderTest, monkeypatch: pytest.MonkeyPatch, *operations: str) -> None:
    """Lets operations of the store fail as a full disk makes them fail."""

    async def refuse(*_: Any, **__: Any) -> None:
        raise StoreUnavailable(StoreFault.DISK_FULL, "no space left on /var/lib/secret")

    for operation in operations:
        monkeypatch.setattr(service.store, operation, refuse)


class TestStoreThatIsAway:
    @pytest.mark.parametrize("operation", ["use_nonce", "get", "now_ms"])
    async def test_a_unary_call(
        self, service: DurableUnderTest, monkeypatch: pytest.MonkeyPatch, operation: str
    ) -> None:
        await service.create()
        fail(service, monkeypatch, operation)
        refusal = await service.party("alice").refused("GetTask", task_id="task")

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
        assert refusal.retry_after_ms == 1_000
        assert "secret" not in refusal.message

    async def test_a_stream_lives_on(
        self, service: DurableUnderTest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lease = await service.running()
        stream = service.party("worker").open()
        await stream.connect(inventory={"leases": [lease]})
        with monkeypatch.context() as patched:
            fail(service, patched, "update")
            await stream.send(renew=worker_service_pb2.RenewTasks(renewal_id=1, leases=[lease]))
            error = Refusal.of_status((await stream.next("frame_error")).status)
            reply = await stream.ask(complete_task={"lease": lease})
        await stream.send(renew=worker_service_pb2.RenewTasks(renewal_id=2, leases=[lease]))
        renewed = await stream.next("verdicts")
        await stream.close()

        assert error.reason == Refusal.of_status(reply.error).reason == "STORE_UNAVAILABLE"
        assert (renewed.renewal_id, len(renewed.verdicts)) == (2, 0)

    async def test_a_hello_is_refused_and_may_come_again(
        self, service: DurableUnderTest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stream = service.party("worker").open()
        with monkeypatch.context() as patched:
            fail(service, patched, "held")
            await stream.greet()
            refusal = await stream.refusal()
        await stream.close()
        again = service.party("worker").open()
        await again.connect()
        await again.close()

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")

    async def test_time_passes_again_when_it_is_back(
        self, service: DurableUnderTest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await service.running()
        with monkeypatch.context() as patched:
            fail(service, patched, "due")
            await service.pass_time(70_000)
            held = await service.task()
        await service.pass_time(1_000)
        lapsed = await service.task()

        assert held.HasField("lease")
        assert not lapsed.HasField("lease")

    async def test_a_fault_of_ours_has_an_incident_and_nothing_else(
        self, service: DurableUnderTest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def break_down(*_: Any) -> None:
            raise DomainError(Reason.INVARIANT, "the fence of task secret does not follow")

        monkeypatch.setattr(service.store, "get", break_down)
        refusal = await service.party("alice").refused("GetTask", task_id="task")

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
        assert set(refusal.metadata) == {"incident_id"}
        assert "secret" not in refusal.message


class TestTime:
    async def test_a_lease_ends_when_it_is_over_without_anybody_asking(
        self, service: DurableUnderTest
    ) -> None:
        await service.running()
        async with service.party("alice").watch("WatchEvents", task_id="task", follow=True) as frames:
            await frames.next()
            await service.pass_time(60_000)
            frame = await frames.next()
            while not frame.HasField("batch"):
                frame = await frames.next()

        assert [event.type for event in frame.batch.events] == ["lease.expired"]

    async def test_a_finish_deadline_cancels(self, service: DurableUnderTest) -> None:
        lease = await service.running(finish_within=Duration(seconds=5))
        await service.pass_time(5_000)
        verdict = (await service.call("worker", "RenewLeases", leases=[lease])).verdicts[0]

        assert verdict.state == lease_pb2.LEASE_STATE_CANCEL_REQUESTED
        assert (await service.task()).cancel_reason == "not finished before its deadline"


class _Deaf:
    """A caller that takes nothing."""

    async def write(self, frame: object) -> None:
        await asyncio.Event().wait()


async def test_a_caller_that_does_not_read_is_given_up() -> None:
    clock = ManualClock()
    watch = Watch("alice", _Deaf(), clock)  # type: ignore[arg-type]
    sending = asyncio.create_task(watch.send(object()))
    while not sending.done():
        await clock.advance_async(10_000)

    with pytest.raises(ServiceError) as raised:
        await sending
    assert raised.value.reason == "SLOW_CONSUMER"
    assert clock.monotonic() == 60


class TestLeaving:
    async def test_calls_that_wait_are_answered_at_once(self, service: DurableUnderTest) -> None:
        await service.create(delay=Duration(seconds=60))
        wait = Duration(seconds=10)
        waiting = [
            asyncio.create_task(service.call("alice", "WaitTask", task_id="task", wait=wait)),
            asyncio.create_task(
                service.call("worker", "ClaimNext", claim_id="c", worker_id="w", drivers=[MAIL], wait=wait)
            ),
        ]
        await eventually(lambda: len(service.server.watches._waits) == 2)
        await service.server.watches.drain()
        waited, claimed = await asyncio.gather(*waiting)

        assert not waited.met
        assert not claimed.HasField("claimed")
        assert (await service.party("alice").refused("WatchTasks")).reason == "SERVER_DRAINING"


class TestHealth:
    async def test_every_service_is_named(self, service: DurableUnderTest) -> None:
        from grpc_health.v1 import health_pb2

        method = service.channel.unary_unary("/grpc.health.v1.Health/Check")
        for name in ("", "sealwork.durable.v1.TaskService", "sealwork.durable.v1.DurableAdminService"):
            request = health_pb2.HealthCheckRequest(service=name).SerializeToString()
            answer = health_pb2.HealthCheckResponse.FromString(await method(request))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING

    async def test_an_unsigned_call(self, service: DurableUnderTest) -> None:
        method = service.channel.unary_unary("/sealwork.durable.v1.TaskService/GetTask")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await method(b"", metadata=(("sealwork-protocol", "1"),))

        assert Refusal.of_error(raised.value).reason == "UNSIGNED_REQUEST"

    async def test_counts(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        await service.call("worker", "CompleteTask", lease=lease)
        value = service.server.metrics.value

        assert value("durable_journal_entries_total", type="task.created") == 1
        assert value("durable_journal_entries_total", type="lease.granted") == 1
        assert value("durable_tasks_ended_total", state="completed") == 1
        assert (await service.task()).state == task_pb2.TASK_STATE_COMPLETED


class TestGauges:
    async def test_what_waits_over_all_tenants(self) -> None:
        async with serving(measured=True) as service:
            scene = await Scene(service).build()
            await service.create("waits")
            await service.create("elsewhere", caller="eve")
            await service.pass_time(30_000)
            value = service.server.metrics.value

            assert value("durable_claimable") == 2
            assert value("durable_claimable_oldest_seconds") == 30
            assert value("durable_live_leases") == 1
            assert value("durable_unknown_actions") == 1
            assert value("durable_unknown_actions_oldest_seconds") == 30
            assert value("durable_pending_approvals") == 1
            await service.call("carol", "DecideApproval", scene.request("DecideApproval"))
            await service.pass_time(15_000)
            assert value("durable_pending_approvals_oldest_seconds") == 0
