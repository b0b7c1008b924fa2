"""Errors over a call: sending one as a status, and reading one back from a status."""

from collections.abc import Iterable
from typing import Any, Final, NoReturn, Protocol

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from service_common.errors import FieldViolation, ServiceError

_DETAILS_KEY: Final = "grpc-status-details-bin"
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class FailedCall(Protocol):
    """What `grpc.aio.AioRpcError` and the blocking client's error have in common."""

    def code(self) -> grpc.StatusCode: ...

    def details(self) -> str | None: ...

    def trailing_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...


async def abort_call(
    context: "grpc.aio.ServicerContext[Any, Any]", error: ServiceError, domain: str
) -> NoReturn:
    """End the call with the error's status.

    Raises:
        grpc.aio.AbortError: Always, so that the handler ends here.
    """
    await context.abort_with_status(rpc_status.to_status(error.to_status(domain)))


def error_from_status(status: status_pb2.Status) -> ServiceError:
    """Return the error that a status tells of; the reason is empty where it names none."""
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    bad_request = error_details_pb2.BadRequest()
    has_retry = False
    for detail in status.details:
        # Unpack tells a foreign type by answering False, and leaves the target alone.
        detail.Unpack(info)
        detail.Unpack(bad_request)
        has_retry = detail.Unpack(retry) or has_retry
    return ServiceError(
        _CODES.get(status.code, grpc.StatusCode.UNKNOWN),
        info.reason,
        status.message,
        metadata=dict(info.metadata),
        retry_after_ms=retry.retry_delay.ToMilliseconds() if has_retry else None,
        violations=[FieldViolation(each.field, each.description) for each in bad_request.field_violations],
    )


def error_from_call(call: FailedCall) -> ServiceError:
    """Return the error of a failed call.

    Proxies may drop the trailers, and a connection that broke has none: then the code and the text are all
    there is, and the reason is empty.
    """
    for key, value in call.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return error_from_status(status_pb2.Status.FromString(value))
            except DecodeError:
                break
    return ServiceError(call.code(), "", call.details() or "")
