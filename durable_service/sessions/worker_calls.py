"""Calls of a worker that ride its stream, each answered as its unary twin would be."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from durable_service.caller import Caller
from durable_service.core.errors import DomainError
from durable_service.planes.action_calls import ActionCalls
from durable_service.planes.gate import Gate
from durable_service.planes.lease_calls import LeaseCalls
from durable_service.planes.record_calls import RecordCalls
from durable_service.planes.refusals import body_too_large, not_implemented, refused
from durable_service.sessions.framing import DOMAIN
from sealwork.durable.v1 import worker_service_pb2
from service_common.call_failures import refusal_of

Call = Callable[[Caller, Any], Awaitable[Any]]

# Arms of WorkerCall, and the methods that they are twins of.
METHODS: Final = {
    "reserve_budget": "ReserveBudget",
    "append_event": "AppendEvent",
    "prepare_action": "PrepareAction",
    "begin_dispatch": "BeginDispatch",
    "confirm_action": "ConfirmAction",
    "mark_action_unknown": "MarkActionUnknown",
    "release_task": "ReleaseTask",
    "yield_task": "YieldTask",
    "complete_task": "CompleteTask",
    "fail_task": "FailTask",
    "acknowledge_cancellation": "AcknowledgeCancellation",
}
_NO_TASKS: Final[frozenset[str]] = frozenset()


class StreamCalls:
    """Answers the calls of streams."""

    def __init__(self, gate: Gate, leases: LeaseCalls, actions: ActionCalls, records: RecordCalls) -> None:
        self._gate = gate
        self._calls: dict[str, Call] = {
            arm: getattr(calls, arm)
            for arm in METHODS
            for calls in (leases, actions, records)
            if hasattr(calls, arm)
        }

    async def answer(
        self,
        principal_id: str,
        worker_id: str,
        call: worker_service_pb2.WorkerCall,
        limit: int,
        reply: worker_service_pb2.WorkerReply,
    ) -> None:
        """Fills in the reply to one call; an error is a reply too.

        Args:
            worker_id: whose lease is meant where the call names none.
            limit: largest body either way, in bytes.
            reply: the empty reply, within the item that will carry it: every message of the way that is not
                made within its place is copied there.
        """
        reply.id = call.id
        try:
            await self._answer(principal_id, worker_id, call, limit, reply)
            return
        except DomainError as error:
            refusal = refused(error)
        except Exception as error:  # noqa: BLE001 - as the unary call maps them
            refusal = refusal_of(error, "a call on a worker's stream")
        reply.error.CopyFrom(refusal.to_status(DOMAIN))

    async def _answer(
        self,
        principal_id: str,
        worker_id: str,
        call: worker_service_pb2.WorkerCall,
        limit: int,
        reply: worker_service_pb2.WorkerReply,
    ) -> None:
        arm = call.WhichOneof("request")
        if arm is None:
            raise not_implemented("this service does not know that call; use the unary method")
        request = getattr(call, arm)
        if request.ByteSize() > limit:
            raise body_too_large(limit)
        lease = request.lease
        if not lease.worker_id:
            lease.worker_id = worker_id
        response = await self._calls[arm](self._gate.caller(METHODS[arm], principal_id), request)
        if response.ByteSize() > limit:
            raise body_too_large(limit)
        getattr(reply, arm).CopyFrom(response)


def tasks_of(call: worker_service_pb2.WorkerCall) -> frozenset[str]:
    """The tasks that a call has to do with."""
    arm = call.WhichOneof("request")
    return _NO_TASKS if arm is None else frozenset((getattr(call, arm).lease.task_id,))
