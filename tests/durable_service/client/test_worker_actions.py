"""Actions: what the worker writes down before and after its connector is called."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from durable_service.client import (
    ActionInput,
    ActionRejectedError,
    ApprovalNeed,
    NotSentError,
    RunEnd,
    StopSignal,
    TaskContext,
)
from durable_service.client.actions import Action
from durable_service.client.connectors import Absent, Finding, Found, Unsettled
from durable_service.client.errors import RecoveryRequiredError, Rejection
from sealwork.durable.v1 import action_service_pb2
from sealwork.durable.v1 import worker_push_pb2 as push_pb
from sealwork.durable.v1 import worker_service_pb2 as pb
from tests.durable_service.client.played_service import (
    ACTION,
    HASH,
    IDEMPOTENCY,
    action,
    claimed,
    played_service,
    refusal,
    status,
    verdict,
)

SEND = ActionInput("a-1", "inbox", {"text": "hello"})


class Post:
    """A connector that notes what it was given."""

    version = "test@1"

    def __init__(self, result: str | BaseException = "posted:1", finding: Finding | None = None) -> None:
        self.result = result
        self.finding = finding or Unsettled("looked:1")
        self.sent: list[Action] = []
        self.entered = asyncio.Event()
        self.go: asyncio.Event | None = None
        self.cut = False

    async def dispatch(self, wanted: Action, signal: StopSignal) -> str:
        self.sent.append(wanted)
        self.entered.set()
        try:
            if self.go is not None:
                await self.go.wait()
        except asyncio.CancelledError:
            self.cut = True
            raise
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    async def reconcile(self, wanted: Action) -> Finding:
        return self.finding


def sending(connector: Post, wanted: ActionInput = SEND) -> Any:
    async def handler(context: TaskContext) -> str:
        return await context.execute(wanted, connector)

    return handler


async def test_the_intent_is_written_before_and_the_result_after() -> None:
    post = Post()
    async with played_service(sending(post), claimed()) as (played, _):
        assert (await played.report()).end is RunEnd.COMPLETED
        assert [name for name, _ in played.calls] == [
            "prepare_action",
            "begin_dispatch",
            "confirm_action",
            "complete_task",
        ]
        prepared = played.named("prepare_action")[0]
        assert (prepared.action_id, prepared.connector_version) == ("a-1", "test@1")
        assert (prepared.destination, prepared.args) == ("inbox", b'{"text":"hello"}')
        assert not prepared.HasField("approval")
        begun, confirmed = played.named("begin_dispatch")[0], played.named("confirm_action")[0]
        assert begun.dispatch_id == confirmed.dispatch_id != ""
        assert confirmed.result_ref == "posted:1"
        assert played.named("complete_task")[0].result_ref == "posted:1"
        (sent,) = post.sent
        assert (sent.idempotency_key, sent.prepared_hash, sent.args) == (
            IDEMPOTENCY,
            HASH,
            {"text": "hello"},
        )


async def test_a_confirmed_action_hands_back_its_result_and_calls_nothing() -> None:
    post = Post()
    known = action_service_pb2.PrepareActionResponse(action=action("CONFIRMED", result_ref="posted:0"))
    async with played_service(sending(post), claimed(), answers={"prepare_action": known}) as (played, _):
        assert (await played.report()).end is RunEnd.COMPLETED
        assert [name for name, _ in played.calls] == ["prepare_action", "complete_task"]
        assert played.named("complete_task")[0].result_ref == "posted:0"
        assert post.sent == []


@pytest.mark.parametrize("state", ["UNKNOWN", "EXECUTING", "UNSPECIFIED"])
async def test_an_open_action_is_never_sent(state: str) -> None:
    post = Post()
    known = action_service_pb2.PrepareActionResponse(action=action(state))
    async with played_service(sending(post), claimed(), answers={"prepare_action": known}) as (played, _):
        report = await played.report()
        assert report.end is RunEnd.RECOVERY_REQUIRED
        assert isinstance(report.error, RecoveryRequiredError)
        assert report.error.action_ids == ("a-1",)
        assert [name for name, _ in played.calls] == ["prepare_action", "release_task"]
        assert post.sent == []


async def test_an_answer_of_a_newer_service_permits_no_dispatch() -> None:
    post = Post()
    begun = action_service_pb2.BeginDispatchResponse(status=status())
    async with played_service(sending(post), claimed(), answers={"begin_dispatch": begun}) as (played, _):
        assert (await played.report()).end is RunEnd.RECOVERY_REQUIRED
        assert post.sent == []


async def test_an_approval_that_pends_suspends_the_task_even_if_the_handler_catches_errors() -> None:
    post = Post()

    async def handler(context: TaskContext) -> str | None:
        try:
            return await context.execute(replace(SEND, approval=ApprovalNeed("bob", 1_900_000_000_123)), post)
        except Exception:  # noqa: BLE001 - what careless handlers do
            return None

    begun = action_service_pb2.BeginDispatchResponse(
        suspended=action_service_pb2.Suspended(approval_id="p-1"), status=status("AWAITING_APPROVAL")
    )
    async with played_service(handler, claimed(), answers={"begin_dispatch": begun}) as (played, _):
        assert (await played.report()).end is RunEnd.SUSPENDED
        approval = played.named("prepare_action")[0].approval
        assert approval.approver_id == "bob"
        assert (approval.expire_time.seconds, approval.expire_time.nanos) == (1_900_000_000, 123_000_000)
        assert [name for name, _ in played.calls][-1] == "release_task"
        assert post.sent == []


async def test_a_handler_may_go_on_without_a_rejected_action() -> None:
    rejections: list[Rejection] = []

    async def handler(context: TaskContext) -> str:
        try:
            return await context.execute(SEND, Post())
        except ActionRejectedError as error:
            rejections.append(error.rejection)
            return "without"

    begun = action_service_pb2.BeginDispatchResponse(
        rejected=action_service_pb2.Rejected(
            reason=action_service_pb2.REJECTION_REASON_DENIED, approval_id="p-1"
        ),
        status=status(),
    )
    async with played_service(handler, claimed(), answers={"begin_dispatch": begun}) as (played, _):
        assert (await played.report()).end is RunEnd.COMPLETED
        assert rejections == [Rejection.DENIED]
        assert played.named("complete_task")[0].result_ref == "without"


@pytest.mark.parametrize("broken", [RuntimeError("reset by peer"), ""])
async def test_whatever_goes_wrong_after_the_call_leaves_the_outcome_unknown(broken: Any) -> None:
    post = Post(broken)
    answers = {"fail_task": refusal("RECOVERY_REQUIRED", action_ids="a-1")}
    async with played_service(sending(post), claimed(), answers=answers) as (played, _):
        assert (await played.report()).end is RunEnd.RECOVERY_REQUIRED
        marked = played.named("mark_action_unknown")
        assert [each.dispatch_id for each in marked] == [played.named("begin_dispatch")[0].dispatch_id]
        assert played.named("confirm_action") == []


async def test_what_was_not_sent_can_be_tried_again_under_the_same_id() -> None:
    post = Post(NotSentError("no connection"))
    seen: list[Any] = []

    async def handler(context: TaskContext) -> str:
        with pytest.raises(NotSentError):
            await context.execute(SEND, post)
        post.result = "posted:2"
        return await context.execute(SEND, post)

    def reconcile(body: bytes) -> bytes:
        seen.append(action_service_pb2.ReconcileActionRequest.FromString(body))
        return action_service_pb2.ReconcileActionResponse(action=action()).SerializeToString()

    async with played_service(handler, claimed()) as (played, _):
        played.unary(ACTION + "ReconcileAction", reconcile)
        assert (await played.report()).end is RunEnd.COMPLETED
        first, second = played.named("begin_dispatch")
        (absent,) = seen
        assert absent.finding == action_service_pb2.FINDING_ABSENT
        # One evidence releases one dispatch, so it names that dispatch.
        assert absent.evidence_ref == f"local:not-sent:{first.dispatch_id}"
        assert first.dispatch_id != second.dispatch_id
        assert absent.prepared_hash == HASH
        assert played.named("mark_action_unknown") == []


async def test_a_cancel_lets_an_effect_finish_and_it_is_confirmed() -> None:
    post = Post()
    post.go = asyncio.Event()
    async with played_service(sending(post), claimed()) as (played, stream):
        await post.entered.wait()
        pushed = push_pb.TaskVerdicts(verdicts=[verdict("CANCEL_REQUESTED", remaining=20)])
        await stream.send(pb.WorkerServerItem(verdicts=pushed))
        await stream.next_item("cancel_ack")
        assert played.named("acknowledge_cancellation") == []
        post.go.set()
        assert (await played.report()).end is RunEnd.CANCELED
        assert [name for name, _ in played.calls] == [
            "prepare_action",
            "begin_dispatch",
            "confirm_action",
            "acknowledge_cancellation",
        ]
        assert not post.cut


async def test_a_lost_lease_cuts_an_effect_off_and_nothing_more_is_written() -> None:
    post = Post()
    post.go = asyncio.Event()
    async with played_service(sending(post), claimed()) as (played, stream):
        await post.entered.wait()
        await stream.send(pb.WorkerServerItem(verdicts=push_pb.TaskVerdicts(verdicts=[verdict("LOST")])))
        assert (await played.report()).end is RunEnd.LEASE_LOST
        assert post.cut
        assert [name for name, _ in played.calls] == ["prepare_action", "begin_dispatch"]


async def test_a_cancel_between_intent_and_call_withdraws_the_intent() -> None:
    post = Post()
    withdrawn: list[Any] = []
    begun = action_service_pb2.BeginDispatchResponse(
        dispatch=action_service_pb2.Dispatch(action=action("EXECUTING")), status=status("CANCEL_REQUESTED")
    )

    def withdraw(body: bytes) -> bytes:
        withdrawn.append(action_service_pb2.WithdrawDispatchRequest.FromString(body))
        return action_service_pb2.WithdrawDispatchResponse(status=status()).SerializeToString()

    async with played_service(sending(post), answers={"begin_dispatch": begun}) as (played, _):
        played.unary(ACTION + "WithdrawDispatch", withdraw)
        played.waiting.append(claimed())
        played.worker._claimer.wake()
        assert (await played.report()).end is RunEnd.CANCELED
        assert post.sent == []
        assert [each.dispatch_id for each in withdrawn] == [played.named("begin_dispatch")[0].dispatch_id]


async def test_completing_waits_for_effects_that_the_handler_left_behind() -> None:
    post = Post()
    go = post.go = asyncio.Event()
    left: list[Any] = []

    async def handler(context: TaskContext) -> None:
        left.append(asyncio.ensure_future(context.execute(SEND, post)))
        await post.entered.wait()
        asyncio.get_running_loop().call_later(0.01, go.set)

    async with played_service(handler, claimed()) as (played, _):
        assert (await played.report()).end is RunEnd.COMPLETED
        assert [name for name, _ in played.calls][-2:] == ["confirm_action", "complete_task"]
        assert await left[0] == "posted:1"


async def test_arguments_that_are_no_json_are_refused_before_anything_is_written() -> None:
    wanted = ActionInput("a-1", "inbox", {"when": object()})  # type: ignore[dict-item]
    async with played_service(sending(Post(), wanted), claimed()) as (played, _):
        report = await played.report()
        assert isinstance(report.error, ValueError)
        assert [name for name, _ in played.calls] == ["fail_task"]


@pytest.mark.parametrize(
    ("finding", "number", "result_ref"),
    [
        (Found("posted:9", "receipt:9"), action_service_pb2.FINDING_CONFIRMED, "posted:9"),
        (Absent("gone:9"), action_service_pb2.FINDING_ABSENT, ""),
        (Unsettled("looked:9"), action_service_pb2.FINDING_UNKNOWN, ""),
    ],
)
async def test_recovery_asks_the_connector_of_the_version_and_gives_the_task_back(
    finding: Finding, number: int, result_ref: str
) -> None:
    settled: list[Any] = []

    def reconcile(body: bytes) -> bytes:
        settled.append(action_service_pb2.ReconcileActionRequest.FromString(body))
        return action_service_pb2.ReconcileActionResponse(action=action("PREPARED")).SerializeToString()

    other = action("UNKNOWN", "a-2")
    other.connector_version = "other@3"
    listed = action_service_pb2.ListActionsResponse(actions=[action("UNKNOWN"), other])
    async with played_service(sending(Post())) as (played, _):
        claim = pb.ClaimForRecoveryResponse(claimed=claimed())
        played.unary("/sealwork.durable.v1.WorkerService/ClaimForRecovery", claim)
        played.unary(ACTION + "ListActions", listed)
        played.unary(ACTION + "ReconcileAction", reconcile)
        actions = await played.worker.recover("t-1", [Post(finding=finding)])
        assert [each.id for each in actions] == ["a-1", "a-2"]  # type: ignore[union-attr]
        (request,) = settled
        assert (request.action_id, request.finding, request.result_ref) == ("a-1", number, result_ref)
        assert request.evidence_ref == finding.evidence_ref
        assert [name for name, _ in played.calls] == ["release_task"]
        assert played.worker.active == 0
