"""What a caller gets to see of an exception."""

import asyncio
import secrets
from typing import Any, Final, NoReturn

import grpc
import structlog

from service_common.errors import ServiceError
from service_common.statuses import abort_call

_log: Final = structlog.get_logger(__name__)


def refusal_of(error: BaseException, method: str) -> ServiceError:
    """Return the error to answer with.

    A ServiceError answers for itself, also as the only one in an exception group. Anything else is a fault of
    ours: it is logged under an incident id, and the id is all that the caller learns.
    """
    known = _service_error_in(error)
    if known is not None:
        return known
    incident_id = secrets.token_hex(8)
    _log.error("call failed", method=method, incident_id=incident_id, exc_info=error)
    return ServiceError(
        grpc.StatusCode.INTERNAL,
        "INTERNAL",
        f"internal error, incident {incident_id}",
        metadata={"incident_id": incident_id},
    )


async def end_call(
    context: "grpc.aio.ServicerContext[Any, Any]", error: ServiceError, domain: str
) -> NoReturn:
    """End the call with the error's status.

    Raises:
        grpc.aio.AbortError: The status was sent.
        asyncio.CancelledError: Nobody was left to receive it.
    """
    try:
        await abort_call(context, error, domain)
    except grpc.aio.InternalError:
        # The caller vanished without the handler's noticing. gRPC takes a cancellation quietly, where any
        # other exception makes it try to send a status once more and log two tracebacks.
        raise asyncio.CancelledError from None


def may_be_cancelled() -> bool:
    """Tell whether gRPC may have cancelled this call, because its caller went away or its deadline passed.

    A yes is not certain: before Python 3.13, a task group that fails while it is being left marks its task as
    cancelled for ever after.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def is_vanished_caller(error: BaseException, context: "grpc.aio.ServicerContext[Any, Any]") -> bool:
    """Tell whether the exception is but the news that nobody waits for the answer any more."""
    if isinstance(error, asyncio.CancelledError):
        return may_be_cancelled()
    # A write to a caller that is gone. `cancelled` is not to be trusted when it denies, only when it affirms.
    return isinstance(error, grpc.aio.InternalError) and context.cancelled()


def _service_error_in(error: BaseException) -> ServiceError | None:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, ServiceError) else None
