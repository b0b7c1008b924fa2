"""How runs end: what the worker tells the service after its handler."""

import asyncio
from typing import Any

import grpc
import pytest

from durable_service.client import Completed, RunEnd, StopCause, Stopped, TaskContext, Yielded
from durable_service.client.errors import ApprovalPending, CancelRequestedError, RecoveryRequiredError
from sealwork.durable.v1 import task_pb2
from sealwork.durable.v1 import worker_push_pb2 as push_pb
from sealwork.durable.v1 import worker_service_pb2 as pb
from tests.durable_service.client.played_service import (
    claimed,
    played_service,
    refusal,
    status,
    verdict,
)

# The handler is told to stop, so this is as good as for ever.
FOREVER = 3_600


async def test_a_handler_that_returns_completes_its_task() -> None:
    seen: list[TaskContext] = []

    async def handler(context: TaskContext) -> str:
        seen.append(context)
        return "result:1"

    shown = claimed()
    shown.task.definition.input = b'{"day":7}'
    async with played_service(handler, shown) as (played, _):
        assert (await played.report()).end is RunEnd.COMPLETED
        (request,) = played.named("complete_task")
        assert request.lease.task_id == "t-1"
        assert request.lease.fence == 1
        assert request.lease.worker_id == "w-1"
        assert request.result_ref == "result:1"
        assert seen[0].input == {"day": 7}
        assert seen[0].fence == 1


async def test_every_outcome_has_its_call() -> None:
    outcomes: list[Any] = [Completed(), Stopped("part:1"), Yielded(90_000, "the site is down"), None]

    async def handler(context: TaskContext) -> Any:
        return outcomes[context.fence - 1]

    tasks = [claimed(fence=fence) for fence in (1, 2, 3, 4)]
    answers = {
        "complete_task": lambda request: pb.CompleteTaskResponse(
            status=status("STOPPED" if request.outcome == pb.TASK_OUTCOME_STOPPED else "COMPLETED")
        )
    }
    async with played_service(handler, *tasks, answers=answers, slots=1) as (played, _):
        ends = [(await played.report(number)).end for number in range(4)]
        assert ends == [RunEnd.COMPLETED, RunEnd.STOPPED, RunEnd.YIELDED, RunEnd.COMPLETED]
        first, second, third = played.named("complete_task")
        assert not first.HasField("result_ref")
        assert (second.outcome, second.result_ref) == (pb.TASK_OUTCOME_STOPPED, "part:1")
        assert third.outcome == pb.TASK_OUTCOME_COMPLETED
        (yielded,) = played.named("yield_task")
        assert (yielded.delay.seconds, yielded.reason) == (90, "the site is down")


async def test_a_handler_that_raises_fails_its_task_with_the_message() -> None:
    async def handler(_: TaskContext) -> None:
        raise RuntimeError("the report is empty")

    async with played_service(handler, claimed()) as (played, _):
        report = await played.report()
        assert report.end is RunEnd.FAILED
        assert isinstance(report.error, RuntimeError)
        assert played.named("fail_task")[0].failure == "the report is empty"
        assert played.named("release_task") == []


async def test_a_success_after_the_request_to_cancel_is_discarded() -> None:
    entered = asyncio.Event()

    async def handler(context: TaskContext) -> str:
        entered.set()
        try:
            await asyncio.sleep(FOREVER)
        except asyncio.CancelledError:
            assert context.signal.cause is StopCause.CANCEL_REQUESTED
        return "too late"

    async with played_service(handler, claimed()) as (played, stream):
        await entered.wait()
        pushed = push_pb.TaskVerdicts(verdicts=[verdict("CANCEL_REQUESTED", remaining=20)])
        await stream.send(pb.WorkerServerItem(verdicts=pushed))
        assert (await played.report()).end is RunEnd.CANCELED
        assert played.named("complete_task") == []
        ack = await stream.next_item("cancel_ack")
        assert [lease.task_id for lease in ack.leases] == ["t-1"]


async def test_a_cancel_is_learned_from_the_answer_to_any_write() -> None:
    async def handler(context: TaskContext) -> None:
        await context.records.append("step.done", {"step": 1})
        await asyncio.sleep(FOREVER)

    from sealwork.durable.v1 import record_service_pb2

    appended = record_service_pb2.AppendEventResponse(sequence=1, status=status("CANCEL_REQUESTED"))
    async with played_service(handler, claimed(), answers={"append_event": appended}) as (played, _):
        assert (await played.report()).end is RunEnd.CANCELED


async def test_an_error_after_the_request_to_cancel_is_dropped() -> None:
    raised: list[BaseException] = []

    async def handler(context: TaskContext) -> None:
        try:
            await context.reserve(5)
        except CancelRequestedError as error:
            raised.append(error)
            raise

    answers = {"reserve_budget": refusal("CANCEL_REQUESTED")}
    async with played_service(handler, claimed(), answers=answers) as (played, _):
        report = await played.report()
        assert (report.end, report.error) == (RunEnd.CANCELED, None)


async def test_cancelling_with_an_open_outcome_is_surfaced_and_the_task_given_back() -> None:
    entered = asyncio.Event()

    async def handler(_: TaskContext) -> None:
        entered.set()
        await asyncio.sleep(FOREVER)

    answers = {"acknowledge_cancellation": refusal("RECOVERY_REQUIRED", action_ids="a-1,a-2")}
    async with played_service(handler, claimed(), answers=answers) as (played, stream):
        await entered.wait()
        pushed = push_pb.TaskVerdicts(verdicts=[verdict("CANCEL_REQUESTED", remaining=20)])
        await stream.send(pb.WorkerServerItem(verdicts=pushed))
        report = await played.report()
        assert report.end is RunEnd.RECOVERY_REQUIRED
        assert isinstance(report.error, RecoveryRequiredError)
        assert report.error.action_ids == ("a-1", "a-2")
        assert len(played.named("release_task")) == 1


async def test_a_task_that_comes_with_a_request_to_cancel_is_acknowledged_without_its_handler() -> None:
    ran: list[int] = []

    async def handler(_: TaskContext) -> None:
        ran.append(1)

    async with played_service(handler, claimed(state=task_pb2.TASK_STATE_CANCEL_REQUESTED)) as (played, _):
        assert (await played.report()).end is RunEnd.CANCELED
        assert ran == []


async def test_a_task_with_an_open_outcome_is_given_back_without_its_handler() -> None:
    ran: list[int] = []

    async def handler(_: TaskContext) -> None:
        ran.append(1)

    async with played_service(handler, claimed(open_action_ids=["a-9"])) as (played, _):
        report = await played.report()
        assert report.end is RunEnd.RECOVERY_REQUIRED
        assert ran == []
        assert [name for name, _ in played.calls] == ["release_task"]


async def test_a_lost_lease_cancels_the_handler_and_writes_nothing() -> None:
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(_: TaskContext) -> None:
        entered.set()
        try:
            await asyncio.sleep(FOREVER)
        finally:
            cancelled.set()

    async with played_service(handler, claimed()) as (played, stream):
        await entered.wait()
        await stream.send(pb.WorkerServerItem(verdicts=push_pb.TaskVerdicts(verdicts=[verdict("LOST")])))
        await cancelled.wait()
        assert (await played.report()).end is RunEnd.LEASE_LOST
        assert played.calls == []


async def test_a_verdict_on_an_earlier_lease_of_the_task_is_not_heeded() -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    async def handler(_: TaskContext) -> None:
        entered.set()
        await go.wait()

    async with played_service(handler, claimed(fence=3)) as (played, stream):
        await entered.wait()
        pushed = push_pb.TaskVerdicts(verdicts=[verdict("LOST", fence=2)])
        await stream.send(pb.WorkerServerItem(verdicts=pushed))
        go.set()
        assert (await played.report()).end is RunEnd.COMPLETED


async def test_suspension_is_a_normal_end_also_from_within_a_task_group() -> None:
    async def child() -> None:
        raise ApprovalPending("a-1", "p-1", 0)

    async def handler(_: TaskContext) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    async with played_service(handler, claimed()) as (played, _):
        report = await played.report()
        assert (report.end, report.error) == (RunEnd.SUSPENDED, None)
        assert [name for name, _ in played.calls] == ["release_task"]


async def test_a_failure_that_an_open_outcome_forbids_is_surfaced() -> None:
    async def handler(_: TaskContext) -> None:
        raise RuntimeError("later")

    answers = {"fail_task": refusal("RECOVERY_REQUIRED", action_ids="a-1")}
    async with played_service(handler, claimed(), answers=answers) as (played, _):
        assert (await played.report()).end is RunEnd.RECOVERY_REQUIRED
        assert len(played.named("release_task")) == 1


async def test_a_completion_too_large_for_the_session_goes_by_unary_call() -> None:
    async def handler(_: TaskContext) -> str:
        return "result:1"

    answers = {"complete_task": refusal("BODY_TOO_LARGE_FOR_SESSION")}
    async with played_service(handler, answers=answers) as (played, _):
        played.unary(
            "/sealwork.durable.v1.WorkerService/CompleteTask",
            pb.CompleteTaskResponse(status=status("COMPLETED")),
        )
        played.waiting.append(claimed())
        played.worker._claimer.wake()
        assert (await played.report()).end is RunEnd.COMPLETED
        assert len(played.server.seen("CompleteTask")) == 1


@pytest.mark.parametrize(
    ("outcome", "said"), [(5, "bad argument type"), ("half \ud800", "surrogates not allowed")]
)
async def test_what_is_no_outcome_fails_the_task(outcome: Any, said: str) -> None:
    async def handler(_: TaskContext) -> Any:
        return outcome

    async with played_service(handler, claimed()) as (played, _):
        report = await played.report()
        assert report.end is RunEnd.FAILED
        assert said in str(report.error)
        assert len(played.named("fail_task")) == 1


async def test_a_result_that_the_service_does_not_take_fails_the_task() -> None:
    async def handler(_: TaskContext) -> str:
        return "   "

    answers = {"complete_task": refusal("INVALID_IDENTIFIER")}
    async with played_service(handler, claimed(), answers=answers) as (played, _):
        assert (await played.report()).end is RunEnd.FAILED


async def test_a_message_of_an_error_is_cut_and_made_fit_to_travel() -> None:
    async def handler(_: TaskContext) -> None:
        raise RuntimeError("\ud800" + "x" * 10_000)

    async with played_service(handler, claimed()) as (played, _):
        assert (await played.report()).end is RunEnd.FAILED
        assert played.named("fail_task")[0].failure == "?" + "x" * 4_095


async def test_a_service_that_cannot_be_reached_is_no_failure_of_the_work() -> None:
    async def handler(context: TaskContext) -> None:
        await context.records.snapshot("step-1")

    async with played_service(handler) as (played, _):

        def away(_: bytes) -> bytes:
            raise refusal("STORE_UNAVAILABLE", grpc.StatusCode.UNAVAILABLE)

        played.unary("/sealwork.durable.v1.RecordService/GetSnapshot", away)
        played.waiting.append(claimed())
        played.worker._claimer.wake()
        report = await played.report()
        assert report.end is RunEnd.RELEASED
        assert played.named("fail_task") == []
