"""Leases: renewals on the stream and beside it, hellos, hints and the end of a worker."""

import asyncio
from typing import Any

import grpc
import pytest

from durable_service.client import RunEnd, StopCause, TaskContext
from durable_service.client.open_claims import NEXT
from sealwork.durable.v1 import task_pb2
from sealwork.durable.v1 import worker_push_pb2 as push_pb
from sealwork.durable.v1 import worker_service_pb2 as pb
from sealwork.session.v1.session_pb2 import Heartbeat
from service_common.clocks import ManualClock
from service_common.errors import ServiceError
from tests.durable_service.client.played_service import (
    WORKER,
    claimed,
    played_service,
    refusal,
    status,
    verdict,
)
from tests.harness.waiting import eventually
from tests.service_common.scripted_server import duration

FOREVER = 3_600


class Waiting:
    """A handler that waits until it is told to stop, or let go."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        self.contexts: list[TaskContext] = []

    def cause(self) -> StopCause | None:
        return self.contexts[0].signal.cause

    async def __call__(self, context: TaskContext) -> None:
        self.contexts.append(context)
        self.entered.set()
        await self.go.wait()


async def test_the_hello_says_who_and_what_and_holds_nothing_at_first() -> None:
    async with played_service(Waiting()) as (_, stream):
        signed = await stream.next_item("hello")
        hello = pb.WorkerHello.FromString(signed.hello)
        assert (hello.principal_id, hello.worker_id, hello.protocol_version) == ("worker", "w-1", 1)
        assert [(each.id, each.version) for each in hello.drivers] == [("report", 1)]
        assert list(hello.inventory.leases) == []
        assert hello.credit.limit == 32


async def test_leases_are_renewed_on_the_stream_at_a_third_and_the_answer_counts_from_the_question() -> None:
    clock, handler = ManualClock(), Waiting()
    async with played_service(handler, claimed(remaining=30), clock=clock) as (played, stream):
        await handler.entered.wait()
        await clock.advance_async(10_000)
        renew = await stream.next_item("renew")
        assert [(each.task_id, each.fence) for each in renew.leases] == [("t-1", 1)]
        # Without an answer the lease would be lost 27 s after the claim.
        await stream.send(
            pb.WorkerServerItem(
                verdicts=push_pb.TaskVerdicts(renewal_id=renew.renewal_id, renewed_for=duration(60))
            )
        )
        held = next(iter(played.worker._held.values()))
        await eventually(lambda: held.lease_seconds == 60)
        await clock.advance_async(18_000)
        assert handler.cause() is None
        handler.go.set()
        assert (await played.report()).end is RunEnd.COMPLETED


async def test_a_lease_without_an_answer_ends_by_the_local_clock_and_stops_the_handler() -> None:
    clock, handler = ManualClock(), Waiting()
    async with played_service(handler, claimed(remaining=30), clock=clock) as (played, _):
        await handler.entered.wait()
        # The unary twin is not served either.
        await clock.advance_async(26_000)
        assert handler.cause() is None
        await clock.advance_async(1_000)
        assert handler.cause() is StopCause.LEASE_LOST
        assert (await played.report()).end is RunEnd.LEASE_LOST
        assert played.calls == []


async def test_a_stream_that_does_not_answer_is_helped_by_a_unary_renewal() -> None:
    clock, handler = ManualClock(), Waiting()
    async with played_service(handler, claimed(remaining=30), clock=clock) as (played, stream):
        await handler.entered.wait()
        answer = pb.RenewLeasesResponse(verdicts=[verdict("ACTIVE", remaining=30)])
        played.unary(WORKER + "RenewLeases", answer)
        await clock.advance_async(10_000)
        await stream.next_item("renew")
        assert played.server.seen("RenewLeases") == []
        await clock.advance_async(10_000)
        await eventually(lambda: played.server.seen("RenewLeases"))
        held = next(iter(played.worker._held.values()))
        await eventually(lambda: held._counted_from > 10)
        await clock.advance_async(9_000)
        assert handler.cause() is None


async def test_an_exception_in_the_answer_to_a_renewal_is_that_lease_alone() -> None:
    clock, handler = ManualClock(), Waiting()
    tasks = [claimed("t-1", remaining=30), claimed("t-2", remaining=30)]
    async with played_service(handler, *tasks, clock=clock) as (played, stream):
        await eventually(lambda: len(handler.contexts) == 2)
        await clock.advance_async(10_000)
        renew = await stream.next_item("renew")
        answer = push_pb.TaskVerdicts(
            renewal_id=renew.renewal_id, renewed_for=duration(30), verdicts=[verdict("LOST", task_id="t-2")]
        )
        await stream.send(pb.WorkerServerItem(verdicts=answer))
        assert (await played.report()).task_id == "t-2"
        assert handler.cause() is None


async def test_the_next_hello_names_what_is_held_and_no_task_is_disturbed() -> None:
    handler = Waiting()
    async with played_service(handler, claimed(fence=4)) as (played, stream):
        await handler.entered.wait()
        stream.end(refusal("SERVER_DRAINING"))
        second = await played.server.stream(1, timeout=10)
        hello = await second.welcome()
        assert [(each.task_id, each.worker_id, each.fence) for each in hello.inventory.leases] == [
            ("t-1", "w-1", 4)
        ]
        assert handler.cause() is None
        await played.worker.opened()
        handler.go.set()
        call = await second.next_item("call")
        assert call.WhichOneof("request") == "complete_task"


async def test_a_hint_is_followed_by_a_claim_and_credit() -> None:
    handler = Waiting()
    async with played_service(handler) as (played, stream):
        await eventually(lambda: len(played.server.seen("ClaimNext")) == 1)
        played.waiting.append(claimed())
        hint = push_pb.TasksAvailable(driver=task_pb2.DriverRef(id="report", version=1), count=1)
        await stream.send(pb.WorkerServerItem(tasks_available=hint))
        await handler.entered.wait()
        assert (await stream.next_item("credit")).limit == 33
        requests = [pb.ClaimNextRequest.FromString(body) for _, _, body in played.server.seen("ClaimNext")]
        # With a stream nothing is waited for, and each claim that was answered has an id of its own.
        assert {request.wait.seconds for request in requests} == {0}
        assert len({request.claim_id for request in requests}) == len(requests)


async def test_without_a_hint_the_service_is_asked_once_a_minute() -> None:
    clock = ManualClock()
    async with played_service(Waiting(), clock=clock) as (played, stream):
        await eventually(lambda: len(played.server.seen("ClaimNext")) == 1)
        # The minute begins with the answer.
        await eventually(lambda: not played.worker._claims.is_open(NEXT))
        for ping_id in range(1, 7):
            await stream.send(pb.WorkerServerItem(heartbeat=Heartbeat(ping_id=ping_id)))
            # Heard before time goes on: after 45 s of silence there would be no stream any more.
            await eventually(lambda: [each for each in stream.items("heartbeat") if each.pong_id == ping_id])  # noqa: B023
            await clock.advance_async(10_000)
        await eventually(lambda: len(played.server.seen("ClaimNext")) == 2)


async def test_no_more_tasks_are_claimed_than_there_are_slots() -> None:
    handler = Waiting()
    tasks = [claimed(f"t-{number}") for number in range(3)]
    async with played_service(handler, *tasks, slots=2) as (played, _):
        await eventually(lambda: len(handler.contexts) == 2)
        assert len(played.waiting) == 1
        handler.go.set()
        await played.report(2)
        assert len(played.server.seen("ClaimNext")) >= 3


async def test_a_claim_whose_answer_was_lost_is_repeated_with_its_id() -> None:
    handler = Waiting()
    lost: list[bytes] = []

    async with played_service(handler) as (played, stream):
        await eventually(lambda: len(played.server.seen("ClaimNext")) == 1)
        claim = played.claim

        def once_lost(body: bytes) -> bytes:
            lost.append(body)
            if len(lost) == 1:
                raise refusal("STORE_UNAVAILABLE", grpc.StatusCode.UNAVAILABLE)
            return claim(body)

        played.unary(WORKER + "ClaimNext", once_lost)
        played.waiting.append(claimed())
        hint = push_pb.TasksAvailable(driver=task_pb2.DriverRef(id="report", version=1), count=1)
        await stream.send(pb.WorkerServerItem(tasks_available=hint))
        await handler.entered.wait()
        first, second = (pb.ClaimNextRequest.FromString(body).claim_id for body in lost[:2])
        assert first == second


async def test_stopping_asks_for_no_more_hints_and_lets_what_runs_finish() -> None:
    handler = Waiting()
    async with played_service(handler, claimed()) as (played, stream):
        await handler.entered.wait()
        stopping = asyncio.ensure_future(played.worker.stop())
        await stream.next_item("draining")
        assert not stopping.done()
        handler.go.set()
        await stopping
        assert (await played.report()).end is RunEnd.COMPLETED


async def test_what_outlasts_the_grace_is_cut_off_and_given_back() -> None:
    handler = Waiting()
    async with played_service(handler, claimed()) as (played, _):
        await handler.entered.wait()
        await played.worker.stop(grace_seconds=0)
        report = await played.report()
        assert report.end is RunEnd.RELEASED
        assert [name for name, _ in played.calls] == ["release_task"]


async def test_a_refusal_for_good_ends_the_worker_and_what_it_runs() -> None:
    handler = Waiting()
    raised: list[Any] = []
    async with played_service(handler, claimed()) as (played, stream):
        await handler.entered.wait()
        stream.end(refusal("PRINCIPAL_REVOKED"))
        report = await played.report()
        assert report.end is RunEnd.LEASE_LOST
        assert "PRINCIPAL_REVOKED" in str(report.error)
        raised.append(played.worker._refusal)
    assert raised[0].reason == "PRINCIPAL_REVOKED"


async def test_a_worker_whose_claims_break_down_ends_with_the_reason() -> None:
    async with played_service(Waiting()) as (played, _):
        await eventually(lambda: len(played.server.seen("ClaimNext")) == 1)

        def broken(*_: Any) -> None:
            raise LookupError("a fault of the client")

        played.worker._claimer._on_won = broken
        played.waiting.append(claimed())
        played.worker._claimer.wake()
        await eventually(played.worker._over.is_set)
        assert isinstance(played.worker._refusal, LookupError)


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (pb.CompleteTaskResponse(status=status("COMPLETED")), RunEnd.COMPLETED),
        (refusal("LEASE_LOST"), RunEnd.LEASE_LOST),
        (refusal("TASK_TERMINAL"), RunEnd.LEASE_LOST),
    ],
)
@pytest.mark.parametrize("news", ["COMPLETED", "LOST"])
async def test_an_end_without_an_answer_is_asked_about_once_the_lease_is_over(
    answer: Any, end: RunEnd, news: str
) -> None:
    clock, handler = ManualClock(), Waiting()
    unanswered = {"complete_task": refusal("STORE_UNAVAILABLE", grpc.StatusCode.UNAVAILABLE)}
    async with played_service(handler, claimed(), clock=clock, answers=unanswered) as (played, stream):

        def complete(_: bytes) -> bytes:
            if isinstance(answer, ServiceError):
                raise answer
            body: bytes = answer.SerializeToString()
            return body

        await handler.entered.wait()
        handler.go.set()
        await eventually(lambda: played.named("complete_task"))
        await stream.send(pb.WorkerServerItem(verdicts=push_pb.TaskVerdicts(verdicts=[verdict(news)])))
        await eventually(lambda: handler.cause() is StopCause.LEASE_LOST)
        played.unary(WORKER + "CompleteTask", complete)

        def reported() -> bool:
            # There is a pause before it asks again.
            clock.advance(500)
            return bool(played.reports)

        await eventually(reported)
        assert played.reports[0].end is end
        assert len(played.server.seen("CompleteTask")) == 1
