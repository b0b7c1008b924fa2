"""A small synchronous client for scripts: no event loop, no stream, no thread left behind.

It creates tasks, waits for them and decides approvals. A program that executes tasks wants `worker.Worker`.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from random import Random
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import grpc
from google.protobuf.message import Message

from durable_service.client.approvals import Approval, approval_of
from durable_service.client.early_answers import EarlyAnswers
from durable_service.client.errors import DurableError
from durable_service.client.methods import (
    CANCEL_TASK,
    CREATE_TASK,
    DECIDE_APPROVAL,
    GET_TASK,
    LIST_PENDING_APPROVALS,
    LIST_TASKS,
    WAIT_TASK,
)
from durable_service.client.principal_key import PrincipalKey
from durable_service.client.task_view import Task, TaskStatus, status_of, task_of
from durable_service.client.tasks import WAIT_MS, NewTask, TaskFilter, View
from durable_service.client.times import duration_of
from sealwork.durable.v1 import approval_service_pb2, task_service_pb2
from service_common.clocks import Clock, SystemClock
from service_common.connection import Connection
from service_common.statuses import error_from_call
from service_common.unary_calls import (
    ATTEMPTS,
    CALL_SECONDS,
    CertifiedRequests,
    Method,
    RequestSigner,
    as_it_is,
    may_help_again,
    pause_before,
)

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)

_PAGE: Final = 100


class BlockingClient:
    """Tasks and approvals for scripts. Each method raises `DurableError` when the service refuses.

    with BlockingClient("127.0.0.1:7443", principal_id="reports", key=PrincipalKey.load(path)) as client:
        client.create(NewTask("report-7", driver=Driver("report", 1)))
        print(client.wait("report-7").result_ref)
    """

    def __init__(
        self,
        address: str | Connection,
        *,
        principal_id: str,
        key: PrincipalKey | None,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare; nothing is connected before the first call.

        Args:
            address: The service, `host:port` or `unix:PATH`; a `Connection` for TLS.
            principal_id: As the service's principals name it.
            key: Its key; None when the client certificate of the connection names the principal.
            clock: Stamps requests, and times waits.
            sleep: Waits that many seconds between attempts.

        Raises:
            ValueError: The address or the id cannot be used.
        """
        connection = Connection(address) if isinstance(address, str) else address
        self._clock: Clock = clock or SystemClock()
        self._sleep = sleep
        self._random = Random()  # noqa: S311 - jitter, not a secret
        signed = None if key is None else RequestSigner(principal_id, key.signer, self._clock)
        self._signer = signed or CertifiedRequests()
        self._channel = connection.blocking_channel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def create(self, task: NewTask) -> tuple[Task, bool]:
        """Admit a task; returns it, and whether it is new."""
        answer = self.call(CREATE_TASK, task.to_request())
        return task_of(answer.task), answer.created

    def get(self, task_id: str, view: View = View.OWNER) -> Task:
        """Read one task."""
        return task_of(
            self.call(GET_TASK, task_service_pb2.GetTaskRequest(task_id=task_id, view=view.value)).task
        )

    def list(self, which: TaskFilter | None = None, view: View = View.PUBLIC) -> Iterator[Task]:
        """Yield tasks, those that were created last first, page by page."""
        request = task_service_pb2.ListTasksRequest(
            filter=(which or TaskFilter()).to_proto(), view=view.value, page_size=_PAGE
        )
        while True:
            page = self.call(LIST_TASKS, request)
            yield from map(task_of, page.tasks)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                return

    def cancel(self, task_id: str, reason: str = "") -> TaskStatus:
        """Ask for a task to be cancelled, and return where it stands then."""
        request = task_service_pb2.CancelTaskRequest(task_id=task_id, reason=reason)
        return status_of(self.call(CANCEL_TASK, request).status)

    def wait(self, task_id: str, *, or_approval: bool = False) -> Task:
        """Return a task once it has ended, or an approval of it waits where that is enough."""
        request = task_service_pb2.WaitTaskRequest(
            task_id=task_id,
            condition=task_service_pb2.WAIT_CONDITION_ENDED_OR_APPROVAL
            if or_approval
            else task_service_pb2.WAIT_CONDITION_ENDED,
            wait=duration_of(WAIT_MS),
            view=View.OWNER.value,
        )
        early = EarlyAnswers(self._random)
        while True:
            asked_at = self._clock.monotonic()
            answer = self.call(WAIT_TASK, request, timeout=CALL_SECONDS + WAIT_MS / 1000)
            if answer.met:
                return task_of(answer.task)
            pause = early.pause(WAIT_MS / 1000, self._clock.monotonic() - asked_at)
            if pause:
                self._sleep(pause)

    def pending_approvals(self, task_id: str = "") -> Iterator[Approval]:
        """Yield what waits for this principal's actor, those that expire first in front."""
        request = approval_service_pb2.ListPendingApprovalsRequest(task_id=task_id, page_size=_PAGE)
        while True:
            page = self.call(LIST_PENDING_APPROVALS, request)
            yield from map(approval_of, page.approvals)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                return

    def decide(self, approval: Approval, *, approved: bool, note: str = "") -> Approval:
        """Give or refuse, for good, bound to the hash that `approval` shows."""
        request = approval_service_pb2.DecideApprovalRequest(
            task_id=approval.task_id,
            approval_id=approval.id,
            prepared_hash=approval.prepared_hash,
            decision=approval_service_pb2.APPROVAL_DECISION_APPROVED
            if approved
            else approval_service_pb2.APPROVAL_DECISION_DENIED,
            note=note,
            request_id=uuid.uuid4().hex,
        )
        return approval_of(self.call(DECIDE_APPROVAL, request).approval)

    def call(
        self, method: Method[RequestT, ResponseT], request: RequestT, *, timeout: float = CALL_SECONDS
    ) -> ResponseT:
        """Make a signed call, and make it again when it got no answer."""
        body = request.SerializeToString()
        attempt = 1
        while True:
            try:
                return self._once(method, body, timeout)
            except DurableError as error:
                if attempt >= ATTEMPTS or not may_help_again(error):
                    raise
                self._sleep(pause_before(attempt, error, self._random))
            attempt += 1

    def _once(self, method: Method[Any, ResponseT], body: bytes, timeout: float) -> ResponseT:
        call = self._channel.unary_unary(method.path, as_it_is, method.response.FromString)
        try:
            response: ResponseT = call(body, timeout=timeout, metadata=self._signer.metadata(method, body))
        except grpc.RpcError as error:
            # Whatever the blocking library raises for a call is that call as well.
            raise DurableError(error_from_call(error)) from None  # type: ignore[arg-type]
        return response
