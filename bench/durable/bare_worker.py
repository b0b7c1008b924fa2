"""A worker that does what the client library's does, with as little around it as may be."""

import asyncio
from random import Random
from typing import Any
from uuid import uuid4

import grpc.aio

from bench.durable.parties import DRIVER_REF, SUBMITTER, WORKER, new_task, signed_calls, worker_hello
from bench.our_relay.line import Line
from bench.variant import VariantFailedError
from durable_service.client.calls import Calls
from durable_service.client.methods import APPEND_EVENT, CLAIM_NEXT, CREATE_TASK
from durable_service.client.worker_session import WORKER_PLANE
from sealwork.durable.v1 import lease_pb2, record_service_pb2, worker_service_pb2
from service_common.connection import Connection

_EVENT = b'{"step":1}'


class BareWorker:
    """One worker with a stream and signed calls on connections of its own, and the tasks that it holds.

    It also submits tasks, as another principal. Claims and submissions are unary calls, and everything else
    rides the stream, as with the client library. Each method raises `DurableError` when it is refused.
    """

    def __init__(self, number: int) -> None:
        self.leases: list[lease_pb2.LeaseRef] = []
        self._name = f"worker-{number}"
        self._random = Random(number)
        self._numbers = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._channel: grpc.aio.Channel | None = None
        self._line: Line | None = None
        self._worker: Calls | None = None
        self._submitter: Calls | None = None

    async def connect(self, address: str) -> None:
        connection = Connection(address)
        self._worker = signed_calls(connection, WORKER, self._random)
        self._submitter = signed_calls(connection, SUBMITTER, self._random)
        self._channel = connection.session_channel()
        hello = worker_hello(self._name)
        self._line = await Line.open(self._channel, WORKER_PLANE, WORKER, hello, self._receive)

    async def close(self) -> None:
        if self._line is not None:
            await self._line.close()
        for closable in (self._channel, self._worker, self._submitter):
            if closable is not None:
                await closable.close()

    async def create(self) -> None:
        """Submits a task."""
        assert self._submitter is not None
        await self._submitter.call(CREATE_TASK, new_task().to_request())

    async def claim(self) -> None:
        """Claims the task that has waited longest.

        Raises:
            VariantFailedError: there was none.
        """
        assert self._worker is not None
        request = worker_service_pb2.ClaimNextRequest(
            worker_id=self._name, claim_id=uuid4().hex, drivers=[DRIVER_REF]
        )
        answer = await self._worker.call(CLAIM_NEXT, request)
        if not answer.HasField("claimed"):
            raise VariantFailedError("there was no task to claim")
        claimed = answer.claimed
        self.leases.append(
            lease_pb2.LeaseRef(task_id=claimed.task.task_id, worker_id=self._name, fence=claimed.lease.fence)
        )

    async def renew(self, lease: lease_pb2.LeaseRef) -> None:
        """Keeps one lease.

        Raises:
            VariantFailedError: it was not kept.
        """
        renewal = worker_service_pb2.RenewTasks(renewal_id=self._next(), leases=[lease])
        verdicts = await self._ask(renewal.renewal_id, worker_service_pb2.WorkerItem(renew=renewal))
        if verdicts.verdicts:
            raise VariantFailedError("a lease was not renewed")

    async def append(self, lease: lease_pb2.LeaseRef) -> None:
        """Writes an entry into the journal, on the stream."""
        await self._call(append_event=_entry(lease))

    async def append_by_unary(self, lease: lease_pb2.LeaseRef) -> None:
        """Writes an entry into the journal, by unary call."""
        assert self._worker is not None
        await self._worker.call(APPEND_EVENT, _entry(lease))

    async def complete(self, lease: lease_pb2.LeaseRef) -> None:
        """Ends a task."""
        await self._call(
            complete_task=worker_service_pb2.CompleteTaskRequest(
                lease=lease, outcome=worker_service_pb2.TASK_OUTCOME_COMPLETED
            )
        )

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    async def _call(self, **request: Any) -> None:
        call = worker_service_pb2.WorkerCall(id=self._next(), **request)
        reply = await self._ask(call.id, worker_service_pb2.WorkerItem(call=call))
        if reply.HasField("error"):
            raise VariantFailedError(f"refused: {reply.error.message}")

    async def _ask(self, number: int, item: worker_service_pb2.WorkerItem) -> Any:
        assert self._line is not None
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._line.send(item)
        return await answer

    def _receive(self, arm: str, item: worker_service_pb2.WorkerServerItem) -> None:
        if arm == "reply":
            self._answered(item.reply.id, item.reply)
        elif arm == "verdicts" and item.verdicts.renewal_id:
            self._answered(item.verdicts.renewal_id, item.verdicts)

    def _answered(self, number: int, answer: Any) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)


def _entry(lease: lease_pb2.LeaseRef) -> record_service_pb2.AppendEventRequest:
    return record_service_pb2.AppendEventRequest(
        lease=lease, event_id=uuid4().hex, type="bench.step", data=_EVENT
    )
