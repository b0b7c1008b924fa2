"""One RPC method with its guard: admission, error mapping and metrics around the servicer's code."""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator
from typing import Any, Final, NoReturn, TypeAlias, cast

import grpc

from service_common.call_failures import end_call, is_vanished_caller, may_be_cancelled, refusal_of
from service_common.call_metrics import MethodMetrics
from service_common.caller_identity import bind_caller
from service_common.clocks import Clock
from service_common.deadlines import within
from service_common.errors import ServiceError
from service_common.method_table import Admission, MethodRule
from service_common.request_headers import require_protocol
from service_common.servicer_functions import Handler, behaviour_of, not_served, strict_parser, unchanged

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

# Work whose caller will not wait for the answer is not begun.
_LEAST_SECONDS: Final = 0.05
_FIRST_MESSAGE_SECONDS: Final = 10.0


class GuardedMethod:
    """Serves one method.

    Unary requests arrive here as bytes and are parsed only after their signature held: the bytes are what was
    signed, and nobody unknown gets to exercise the parser.
    """

    def __init__(
        self, name: str, inner: Handler, rule: MethodRule, metrics: MethodMetrics, clock: Clock
    ) -> None:
        self.inner = inner
        self._name = name
        self._rule = rule
        self._metrics = metrics
        self._clock = clock
        self._behaviour = behaviour_of(inner)
        self._yields = inspect.isasyncgenfunction(self._behaviour)
        self._parse = strict_parser(inner.request_deserializer)
        self._serialize = inner.response_serializer or unchanged

    def handler(self) -> Handler:
        """Return the handler to serve in place of the inner one."""
        inner = self.inner
        if inner.request_streaming:
            if inner.response_streaming:
                return grpc.stream_stream_rpc_method_handler(
                    self._stream_stream, self._parse, inner.response_serializer
                )
            if self._rule.admission is Admission.SIGNED:
                return grpc.stream_unary_rpc_method_handler(self._signed_stream_unary)
            return grpc.stream_unary_rpc_method_handler(self._stream_unary, self._parse)
        if inner.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._unary_stream, response_serializer=inner.response_serializer
            )
        return grpc.unary_unary_rpc_method_handler(self._unary_unary)

    async def _unary_unary(self, request: bytes, context: Context) -> bytes:
        started = self._begin()
        try:
            await self._admit(request, context)
            # Serialized here, because gRPC would tell the caller the text of what a serializer raises.
            response = self._serialize(await self._behaviour(self._parse(request), context))
        except BaseException as error:  # noqa: BLE001 - this is the one place that maps them all
            await self._fail(error, context, started)
        self._end(context, started)
        return response

    async def _unary_stream(self, request: bytes, context: Context) -> None:
        started = self._begin()
        try:
            await self._admit(request, context)
            await self._respond(self._parse(request), context)
        except BaseException as error:  # noqa: BLE001 - as above
            await self._fail(error, context, started)
        self._end(context, started)

    async def _stream_unary(self, requests: AsyncIterator[Any], context: Context) -> bytes:
        started = self._begin()
        try:
            await self._admit(None, context)
            response = self._serialize(await self._behaviour(requests, context))
        except BaseException as error:  # noqa: BLE001 - as above
            await self._fail(error, context, started)
        self._end(context, started)
        return response

    async def _signed_stream_unary(self, requests: AsyncIterator[bytes], context: Context) -> bytes:
        started = self._begin()
        try:
            first = await self._first_message(requests)
            await self._admit(first, context)
            messages = self._parsed(first, requests)
            response = self._serialize(await self._behaviour(messages, context))
        except BaseException as error:  # noqa: BLE001 - as above
            await self._fail(error, context, started)
        self._end(context, started)
        return response

    async def _first_message(self, requests: AsyncIterator[bytes]) -> bytes:
        # Nobody is known before it came, so it has a limit of time that no caller chooses.
        try:
            return await within(self._clock, _FIRST_MESSAGE_SECONDS, _next_of(requests))
        except TimeoutError:
            raise _no_first_message() from None

    async def _parsed(self, first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        yield self._parse(first)
        async for message in rest:
            yield self._parse(message)

    async def _stream_stream(self, requests: AsyncIterator[Any], context: Context) -> None:
        started = self._begin()
        try:
            await self._admit(None, context)
            await self._respond(requests, context)
        except BaseException as error:  # noqa: BLE001 - as above
            await self._fail(error, context, started)
        self._end(context, started)

    async def _admit(self, request: bytes | None, context: Context) -> None:
        rule = self._rule
        if rule.admission is Admission.DENIED:
            raise not_served()
        # None without a deadline, whatever the annotation says.
        remaining = cast("float | None", context.time_remaining())
        if remaining is not None and remaining < _LEAST_SECONDS:
            raise ServiceError(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                "DEADLINE_TOO_SHORT",
                "the deadline leaves no time to answer",
            )
        if rule.authenticator is not None and request is not None:
            bind_caller(await rule.authenticator.authenticate(self._name, context, request))
        elif rule.versioned:
            require_protocol(context.invocation_metadata() or ())

    async def _respond(self, request: Any, context: Context) -> None:
        if not self._yields:
            await self._behaviour(request, context)
            return
        async with contextlib.aclosing(self._behaviour(request, context)) as responses:
            async for response in responses:
                await context.write(response)

    def _begin(self) -> float:
        self._metrics.begin()
        return self._clock.monotonic()

    def _end(self, context: Context, started: float) -> None:
        self._finish(_code(context, grpc.StatusCode.OK), started)

    def _finish(self, code: grpc.StatusCode, started: float) -> None:
        self._metrics.end(code, self._clock.monotonic() - started)

    async def _fail(self, error: BaseException, context: Context, started: float) -> NoReturn:
        if isinstance(error, grpc.aio.AbortError):
            self._finish(_code(context, grpc.StatusCode.UNKNOWN), started)
            raise error
        if is_vanished_caller(error, context):
            self._finish(grpc.StatusCode.CANCELLED, started)
            raise error if isinstance(error, asyncio.CancelledError) else asyncio.CancelledError from error
        # What is left includes a CancelledError that nobody meant for this call, such as that of a shared
        # future: passed on, it would leave the caller without any status until its deadline.
        refusal = refusal_of(error, self._name)
        self._metrics.refuse(refusal.reason)
        if may_be_cancelled():
            await self._end_if_anyone_listens(context, refusal, started)
        self._finish(refusal.code, started)
        await end_call(context, refusal, self._rule.domain)

    async def _end_if_anyone_listens(
        self, context: Context, refusal: ServiceError, started: float
    ) -> NoReturn:
        # A handler may turn its cancellation into another exception. Sending the status shows which it was.
        code = refusal.code
        try:
            await end_call(context, refusal, self._rule.domain)
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            raise
        finally:
            self._finish(code, started)


async def _next_of(requests: AsyncIterator[bytes]) -> bytes:
    try:
        return await anext(requests)
    except StopAsyncIteration:
        # A coroutine may not raise that itself.
        raise _no_first_message() from None


def _no_first_message() -> ServiceError:
    return ServiceError(
        grpc.StatusCode.INVALID_ARGUMENT,
        "PROTOCOL_VIOLATION",
        "the stream needs a first message, which its caller signs",
    )


def _code(context: Context, default: grpc.StatusCode) -> grpc.StatusCode:
    # None unless the servicer set a code of its own or aborted, whatever the annotation says.
    return cast("grpc.StatusCode | None", context.code()) or default
