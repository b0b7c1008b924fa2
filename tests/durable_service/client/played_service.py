"""A worker against a durable service that the test plays by hand."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import grpc

from durable_service.client.client import Client
from durable_service.client.principal_key import PrincipalKey
from durable_service.client.task_run import RunReport
from durable_service.client.worker import Worker
from sealwork.durable.v1 import action_pb2, claim_pb2, lease_pb2, task_pb2
from sealwork.durable.v1 import worker_service_pb2 as pb
from service_common.clocks import Clock, SystemClock
from service_common.errors import ServiceError
from tests.harness.waiting import eventually
from tests.service_common.scripted_server import (
    Plane,
    ScriptedServer,
    ScriptedStream,
    duration,
    scripted_server,
)

PLANE = Plane(
    "sealwork.durable.v1.WorkerService",
    pb.WorkerServiceSessionRequest,
    pb.WorkerServiceSessionResponse,
    pb.WorkerServerItem,
    pb.WorkerHello,
)
WORKER = "/sealwork.durable.v1.WorkerService/"
ACTION = "/sealwork.durable.v1.ActionService/"
RECORD = "/sealwork.durable.v1.RecordService/"
KEY = PrincipalKey(bytes(range(32)))
HASH = "sha256:" + "1" * 64
IDEMPOTENCY = "sha256:" + "2" * 64

Answer = Callable[[Any], Any]


def refusal(reason: str, code: grpc.StatusCode = grpc.StatusCode.FAILED_PRECONDITION, **facts: str) -> Any:
    return ServiceError(code, reason, "as the test says", metadata=facts)


def status(state: str = "RUNNING", task_id: str = "t-1") -> task_pb2.TaskStatus:
    return task_pb2.TaskStatus(
        task_id=task_id, state=task_pb2.TaskState.Value(f"TASK_STATE_{state}"), revision=7
    )


def claimed(
    task_id: str = "t-1", *, fence: int = 1, remaining: float = 30, **task: Any
) -> claim_pb2.ClaimedTask:
    shown = task_pb2.Task(task_id=task_id, state=task_pb2.TASK_STATE_RUNNING)
    shown.definition.driver.CopyFrom(task_pb2.DriverRef(id="report", version=1))
    shown.MergeFrom(task_pb2.Task(**task))
    lease = lease_pb2.Lease(worker_id="w-1", fence=fence, remaining=duration(remaining))
    return claim_pb2.ClaimedTask(task=shown, lease=lease, reason=claim_pb2.CLAIM_REASON_FRESH)


def action(state: str = "PREPARED", action_id: str = "a-1", **fields: Any) -> action_pb2.Action:
    return action_pb2.Action(
        task_id="t-1",
        action_id=action_id,
        state=action_pb2.ActionState.Value(f"ACTION_STATE_{state}"),
        connector_version="test@1",
        destination="inbox",
        args=b'{"text":"hello"}',
        prepared_hash=HASH,
        idempotency_key=IDEMPOTENCY,
        **fields,
    )


def verdict(state: str, *, fence: int = 1, remaining: float = 0, task_id: str = "t-1") -> Any:
    return lease_pb2.LeaseVerdict(
        lease=lease_pb2.LeaseRef(task_id=task_id, worker_id="w-1", fence=fence),
        state=lease_pb2.LeaseState.Value(f"LEASE_STATE_{state}"),
        remaining=duration(remaining),
    )


@dataclass
class PlayedService:
    """The service's end: what is claimed, what each call is answered with, and what was called.

    Attributes:
        waiting: Tasks that the next claims win.
        answers: By the name of a call on the session, what to answer: a message, a refusal, or a function.
        calls: Names and requests of all calls on the session, in order.
        reports: How runs have ended.
    """

    server: ScriptedServer
    worker: Worker
    waiting: list[claim_pb2.ClaimedTask] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    reports: list[RunReport] = field(default_factory=list)

    def claim(self, body: bytes) -> bytes:
        request = pb.ClaimNextRequest.FromString(body)
        assert request.worker_id == "w-1"
        if not self.waiting:
            return pb.ClaimNextResponse().SerializeToString()
        return pb.ClaimNextResponse(claimed=self.waiting.pop(0)).SerializeToString()

    async def answer_calls(self, stream: ScriptedStream) -> None:
        """Answers every call on the session."""
        answered = 0
        while True:
            call = await stream.next_item("call", after=answered)
            answered += 1
            name = call.WhichOneof("request")
            request = getattr(call, name)
            self.calls.append((name, request))
            answer = self.answers.get(name, default_answers()[name])
            answer = answer(request) if callable(answer) else answer
            reply = pb.WorkerReply(id=call.id)
            if isinstance(answer, ServiceError):
                reply.error.CopyFrom(answer.to_status("durable.sealwork.dev"))
            else:
                getattr(reply, name).CopyFrom(answer)
            await stream.send(pb.WorkerServerItem(reply=reply))

    def named(self, name: str) -> list[Any]:
        return [request for called, request in self.calls if called == name]

    async def report(self, number: int = 0) -> RunReport:
        await eventually(
            lambda: len(self.reports) > number, 5, lambda: f"report {number}, calls {self.calls}"
        )
        return self.reports[number]

    def unary(self, path: str, answer: Any) -> None:
        """Answers a unary method with a message, or with what a function of the raw request returns."""
        self.server.unary[path] = answer if callable(answer) else lambda _body: answer.SerializeToString()


def default_answers() -> dict[str, Any]:
    from sealwork.durable.v1 import action_service_pb2, record_service_pb2

    return {
        "prepare_action": action_service_pb2.PrepareActionResponse(action=action(), status=status()),
        "begin_dispatch": action_service_pb2.BeginDispatchResponse(
            dispatch=action_service_pb2.Dispatch(action=action("EXECUTING")), status=status()
        ),
        "confirm_action": action_service_pb2.ConfirmActionResponse(
            action_state=action_pb2.ACTION_STATE_CONFIRMED, status=status()
        ),
        "mark_action_unknown": action_service_pb2.MarkActionUnknownResponse(status=status()),
        "append_event": record_service_pb2.AppendEventResponse(sequence=4, status=status()),
        "reserve_budget": pb.ReserveBudgetResponse(status=status()),
        "complete_task": pb.CompleteTaskResponse(status=status("COMPLETED")),
        "fail_task": pb.FailTaskResponse(status=status("FAILED")),
        "acknowledge_cancellation": pb.AcknowledgeCancellationResponse(status=status("CANCELED")),
        "release_task": pb.ReleaseTaskResponse(status=status()),
        "yield_task": pb.YieldTaskResponse(status=status()),
    }


@asynccontextmanager
async def played_service(
    handler: Any,
    *tasks: claim_pb2.ClaimedTask,
    clock: Clock | None = None,
    stream: bool = True,
    answers: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[tuple[PlayedService, ScriptedStream]]:
    """Runs a worker that has a stream, and hands over the service's end of it."""
    async with scripted_server(PLANE) as server:
        client = Client(
            server.address, principal_id="worker", key=KEY, clock=clock or SystemClock(), random=Random(1)
        )
        reports: list[RunReport] = []
        worker = Worker(client, {"report@1": handler}, worker_id="w-1", on_end=reports.append, **options)
        played = PlayedService(server, worker, [*tasks], answers or {}, reports=reports)
        server.unary[WORKER + "ClaimNext"] = played.claim
        running = asyncio.ensure_future(worker.run())
        pushed = await server.stream()
        await pushed.welcome()
        answering = asyncio.ensure_future(played.answer_calls(pushed))
        try:
            await worker.opened()
            yield played, pushed
        finally:
            for each in server.streams:
                each.over.set()
            running.cancel()
            answering.cancel()
            await asyncio.gather(running, answering, return_exceptions=True)
            await client.close()
