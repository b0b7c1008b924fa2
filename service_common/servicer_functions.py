"""The functions that a servicer registered for a method, made fit to be guarded."""

import inspect
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import grpc

from service_common.errors import ServiceError, malformed_request

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


def behaviour_of(inner: Handler) -> Callable[[Any, Any], Any]:
    """Return the servicer's own function."""
    if inner.request_streaming:
        behaviour = inner.stream_stream if inner.response_streaming else inner.stream_unary
    else:
        behaviour = inner.unary_stream if inner.response_streaming else inner.unary_unary
    if inspect.iscoroutinefunction(behaviour) or inspect.isasyncgenfunction(behaviour):
        return behaviour
    # The placeholders of generated servicers are the only functions that are not async here.
    return _not_served


def not_served() -> ServiceError:
    """Return the refusal of a method that exists and is not served."""
    return ServiceError(
        grpc.StatusCode.UNIMPLEMENTED, "NOT_IMPLEMENTED", "this server does not serve the method"
    )


async def _not_served(_request: object, _context: object) -> NoReturn:
    raise not_served()


def strict_parser(parse: Callable[[bytes], Any] | None) -> Callable[[bytes], Any]:
    """Let a parser refuse bytes as the caller's fault, whatever it raises."""
    if parse is None:
        return unchanged

    def parse_strictly(request: bytes) -> Any:
        try:
            return parse(request)
        except Exception as error:
            raise malformed_request() from error

    return parse_strictly


def unchanged(message: Any) -> Any:
    """Stand in for a serializer where messages are bytes already."""
    return message
