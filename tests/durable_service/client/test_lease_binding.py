"""Connectors that keep records, and connectors that are told when their result is safe."""

from typing import Any

import grpc
import pytest

from durable_service.client import ActionInput, ActionState, RunEnd, StopSignal, TaskContext
from durable_service.client.actions import Action
from durable_service.client.connectors import Absent, Connector, Finding, Found
from durable_service.client.records import Records
from sealwork.durable.v1 import action_service_pb2
from sealwork.durable.v1 import worker_service_pb2 as pb
from tests.durable_service.client.played_service import (
    ACTION,
    PlayedService,
    action,
    claimed,
    played_service,
    refusal,
)

SEND = ActionInput("a-1", "inbox", {"text": "hello"})


class Post:
    """A connector whose far side keeps what it brings until it is told."""

    version = "test@1"

    def __init__(self, finding: Finding | None = None, failure: Exception | None = None) -> None:
        self.finding = finding or Absent("gone:1")
        self.failure = failure
        self.played: PlayedService | None = None
        self.said: list[tuple[str, Any, Any, list[str]]] = []

    async def dispatch(self, wanted: Action, signal: StopSignal) -> str:
        return "posted:1"

    async def reconcile(self, wanted: Action) -> Finding:
        return self.finding

    async def settled(self, confirmed: Action) -> None:
        calls = [name for name, _ in self.played.calls] if self.played else []
        self.said.append((confirmed.id, confirmed.state, confirmed.result_ref, calls))
        if self.failure is not None:
            raise self.failure


class Library:
    """Makes a connector for each lease."""

    version = "test@1"

    def __init__(self, post: Post) -> None:
        self.post = post
        self.records: list[Records] = []

    def bind(self, records: Records) -> Connector:
        self.records.append(records)
        return self.post


def sending(connector: Any, seen: list[Records]) -> Any:
    async def handler(context: TaskContext) -> str:
        seen.append(context.records)
        return await context.execute(SEND, connector)

    return handler


@pytest.mark.parametrize("failure", [None, RuntimeError("the far side is away")])
async def test_the_far_side_is_told_after_the_result_is_confirmed(failure: Exception | None) -> None:
    post = Post(failure=failure)
    async with played_service(sending(post, []), claimed()) as (played, _):
        post.played = played
        assert (await played.report()).end is RunEnd.COMPLETED
        assert post.said == [
            (
                "a-1",
                ActionState.CONFIRMED,
                "posted:1",
                ["prepare_action", "begin_dispatch", "confirm_action"],
            )
        ]


async def test_the_far_side_is_not_told_of_what_could_not_be_confirmed() -> None:
    post = Post()
    answers = {"confirm_action": refusal("LEASE_LOST", grpc.StatusCode.ABORTED)}
    async with played_service(sending(post, []), claimed(), answers=answers) as (played, _):
        assert (await played.report()).end is RunEnd.LEASE_LOST
        assert post.said == []


async def test_a_confirmed_action_is_not_told_again() -> None:
    post = Post()
    known = action_service_pb2.PrepareActionResponse(action=action("CONFIRMED", result_ref="posted:0"))
    async with played_service(sending(post, []), claimed(), answers={"prepare_action": known}) as (played, _):
        assert (await played.report()).end is RunEnd.COMPLETED
        assert post.said == []


async def test_a_connector_that_keeps_records_is_made_for_each_lease() -> None:
    post, handed = Post(), list[Records]()
    library = Library(post)
    async with played_service(sending(library, handed), claimed(), claimed("t-2", fence=2)) as (played, _):
        assert (await played.report(0)).end is RunEnd.COMPLETED
        assert (await played.report(1)).end is RunEnd.COMPLETED
    tasks = [each._calls.held.task_id for each in library.records]
    assert sorted(tasks) == ["t-1", "t-2"]


@pytest.mark.parametrize(
    ("finding", "state", "told"),
    [
        (Found("posted:9", "receipt:9"), "CONFIRMED", [("a-1", ActionState.CONFIRMED, "posted:9", [])]),
        (Absent("gone:9"), "PREPARED", []),
    ],
)
async def test_a_look_up_that_confirms_tells_the_far_side_too(
    finding: Finding, state: str, told: list[Any]
) -> None:
    post = Post(finding)
    library = Library(post)
    listed = action_service_pb2.ListActionsResponse(actions=[action("UNKNOWN")])
    written = action_service_pb2.ReconcileActionResponse(action=action(state, result_ref="posted:9"))
    async with played_service(sending(post, [])) as (played, _):
        played.unary(
            "/sealwork.durable.v1.WorkerService/ClaimForRecovery",
            pb.ClaimForRecoveryResponse(claimed=claimed()),
        )
        played.unary(ACTION + "ListActions", listed)
        played.unary(ACTION + "ReconcileAction", written)
        await played.worker.recover("t-1", [library])
        assert post.said == told
        assert [each._calls.held.task_id for each in library.records] == ["t-1"]
