"""One run of a handler, from a claim to the end of the lease."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from durable_service.client.errors import (
    ApprovalPending,
    CancelRequestedError,
    DurableError,
    LeaseLostError,
    RecoveryRequiredError,
)
from durable_service.client.extensions import Extensions
from durable_service.client.handler import Completed, Handler, Outcome, Stopped, TaskContext, Yielded
from durable_service.client.lease_calls import LeaseCalls
from durable_service.client.ledger import Ledger
from durable_service.client.methods import (
    ACKNOWLEDGE_CANCELLATION,
    COMPLETE_TASK,
    FAIL_TASK,
    RELEASE_TASK,
    YIELD_TASK,
)
from durable_service.client.records import Records
from durable_service.client.reservations import Reservations
from durable_service.client.stop_signal import StopCause
from durable_service.client.task_view import Task, state_of
from durable_service.client.times import duration_of
from durable_service.core.states import TaskState
from sealwork.durable.v1 import worker_service_pb2 as pb
from service_common.unary_calls import may_help_again

logger = logging.getLogger("sealwork.client")

_FAILED: Final = "the handler failed"
_FAILURE_CHARACTERS: Final = 4_096
_BAD_OUTCOME: Final = frozenset({"FIELD_INVALID", "INVALID_IDENTIFIER"})


class RunEnd(StrEnum):
    """How a run ended, as this worker knows it."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    CANCELED = "canceled"
    SUSPENDED = "suspended"
    YIELDED = "yielded"
    RELEASED = "released"
    RECOVERY_REQUIRED = "recovery-required"
    LEASE_LOST = "lease-lost"
    REFUSED = "refused"


_ENDS: Final = {
    TaskState.COMPLETED: RunEnd.COMPLETED,
    TaskState.STOPPED: RunEnd.STOPPED,
    TaskState.FAILED: RunEnd.FAILED,
    TaskState.CANCELED: RunEnd.CANCELED,
}


@dataclass(frozen=True, slots=True)
class RunReport:
    """What came of one run.

    Attributes:
        task_id: The task.
        fence: Of the lease.
        end: How it ended.
        error: What the handler raised, or what stood against the end; None when nothing did.
    """

    task_id: str
    fence: int
    end: RunEnd
    error: BaseException | None = None


class TaskRun:
    """Runs a handler under a lease. Somebody else renews the lease meanwhile."""

    def __init__(self, task: Task, calls: LeaseCalls, handler: Handler | None) -> None:
        """Prepare to run `handler` for a task that is held; without one it is given back."""
        self._calls = calls
        self._held = calls.held
        self._handler = handler
        self._ledger = Ledger(calls)
        self._context = TaskContext(
            task,
            self._held.ref.fence,
            self._held.signal,
            self._ledger,
            Records(calls),
            Reservations(calls),
            Extensions(calls),
        )

    async def run(self) -> RunReport:
        """Run the handler and end the lease; never raises for what handler or service do."""
        try:
            end, error = await self._run()
        except LeaseLostError as lost:
            end, error = RunEnd.LEASE_LOST, lost
        except RecoveryRequiredError as open_outcome:
            end, error = RunEnd.RECOVERY_REQUIRED, open_outcome
        except (DurableError, CancelRequestedError) as refused:
            end, error = RunEnd.REFUSED, refused
        finally:
            await self._give_back()
        return RunReport(self._held.task_id, self._held.ref.fence, end, error)

    async def _run(self) -> tuple[RunEnd, BaseException | None]:
        if self._context.task.open_action_ids:
            # The handler must not run beside an effect that may or may not have happened.
            raise RecoveryRequiredError(self._held.task_id, self._context.task.open_action_ids)
        if self._context.task.state is TaskState.CANCEL_REQUESTED:
            return await self._acknowledge(), None
        if self._handler is None:
            return RunEnd.RELEASED, LookupError("this worker has no handler for the task's driver")
        handling = asyncio.ensure_future(self._handler(self._context))
        self._held.signal.listen(lambda _cause: _cancel(handling))
        try:
            await asyncio.wait((handling,))
        except asyncio.CancelledError:
            # This worker is torn down: neither handler nor effects may outlive it.
            handling.cancel()
            self._ledger.cut()
            raise
        if self._held.signal.cause is StopCause.WORKER_STOPS:
            self._ledger.cut()
        await self._ledger.quiesce()
        if handling.cancelled():
            return await self._after_error(None)
        if (error := handling.exception()) is not None:
            return await self._after_error(error)
        return await self._after_return(handling.result())

    async def _after_return(self, outcome: Outcome) -> tuple[RunEnd, BaseException | None]:
        self._held.require_held()
        if self._held.signal.cause is StopCause.CANCEL_REQUESTED:
            # A success that comes after the request to cancel is discarded.
            return await self._acknowledge(), None
        try:
            return await self._conclude(outcome), None
        except CancelRequestedError:
            return await self._acknowledge(), None
        except (TypeError, ValueError) as error:
            # What the handler returned is no outcome, and it will return the same the next time.
            return await self._fail(error)
        except DurableError as error:
            if error.reason not in _BAD_OUTCOME:
                raise
            return await self._fail(error)

    async def _after_error(self, error: BaseException | None) -> tuple[RunEnd, BaseException | None]:
        """End the lease after a handler that was cancelled (None) or has raised."""
        if isinstance(error, LeaseLostError) or self._held.signal.cause is StopCause.LEASE_LOST:
            self._held.require_held()
        if self._held.signal.cause is StopCause.CANCEL_REQUESTED:
            return await self._acknowledge(), None
        if _within(error, ApprovalPending) is not None:
            await self._release()
            return RunEnd.SUSPENDED, None
        if self._held.signal.cause is StopCause.WORKER_STOPS and _is_cancellation(error):
            await self._release()
            return RunEnd.RELEASED, None
        open_outcome = _within(error, RecoveryRequiredError)
        if open_outcome is not None:
            return RunEnd.RECOVERY_REQUIRED, open_outcome
        unanswered = _within(error, DurableError)
        if isinstance(unanswered, DurableError) and may_help_again(unanswered):
            # The service could not be reached, which is no failure of the work: failing is for good.
            await self._release()
            return RunEnd.RELEASED, unanswered
        return await self._fail(error)

    # -- the ends of a lease ------------------------------------------------------------

    async def _conclude(self, outcome: Outcome) -> RunEnd:
        if isinstance(outcome, Yielded):
            yielding = pb.YieldTaskRequest(delay=duration_of(outcome.delay_ms), reason=outcome.reason)
            await self._calls.end(YIELD_TASK, yielding, "yield_task")
            self._held.end()
            return RunEnd.YIELDED
        request = pb.CompleteTaskRequest(outcome=pb.TASK_OUTCOME_COMPLETED)
        if isinstance(outcome, Stopped):
            request.outcome = pb.TASK_OUTCOME_STOPPED
        result_ref = outcome.result_ref if isinstance(outcome, Completed | Stopped) else outcome
        if result_ref:
            request.result_ref = result_ref
        answer = await self._calls.end(COMPLETE_TASK, request, "complete_task")
        return self._ended(answer.status.state)

    async def _fail(self, error: BaseException | None) -> tuple[RunEnd, BaseException | None]:
        request = pb.FailTaskRequest(failure=_failure_text(error))
        try:
            answer = await self._calls.end(FAIL_TASK, request, "fail_task")
        except CancelRequestedError:
            return await self._acknowledge(), None
        return self._ended(answer.status.state), error

    async def _acknowledge(self) -> RunEnd:
        request = pb.AcknowledgeCancellationRequest()
        answer = await self._calls.end(ACKNOWLEDGE_CANCELLATION, request, "acknowledge_cancellation")
        return self._ended(answer.status.state)

    async def _release(self) -> None:
        await self._calls.end(RELEASE_TASK, pb.ReleaseTaskRequest(), "release_task")
        self._held.end()

    async def _give_back(self) -> None:
        """Whatever has gone wrong: a lease that is held is not left to run out."""
        if self._held.is_held:
            try:
                await self._calls.call(RELEASE_TASK, pb.ReleaseTaskRequest(), "release_task")
            except (DurableError, LeaseLostError, CancelRequestedError, RecoveryRequiredError) as error:
                logger.info("the task %s could not be given back: %s", self._held.task_id, error)
        self._held.end()

    def _ended(self, state: "int") -> RunEnd:
        self._held.end()
        return _ENDS.get(state_of(state), RunEnd.RELEASED)  # type: ignore[arg-type]


def _cancel(task: "asyncio.Future[Outcome]") -> None:
    task.cancel()


def _failure_text(error: BaseException | None) -> str:
    if error is None or isinstance(error, asyncio.CancelledError):
        return _FAILED
    text = str(error) or type(error).__name__
    # Half a surrogate pair cannot travel.
    return text[:_FAILURE_CHARACTERS].encode("utf-8", "replace").decode()


def _is_cancellation(error: BaseException | None) -> bool:
    return error is None or isinstance(error, asyncio.CancelledError)


def _within(error: BaseException | None, kind: "type[BaseException]") -> BaseException | None:
    """Return the first error of a kind, also within the groups that a task group raises."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for each in error.exceptions if (found := _within(each, kind))), None)
    return error if isinstance(error, kind) else None


OnEnd = Callable[[RunReport], None]
"""Told how each run has ended. It may not block."""
