"""Signed calls of the durable service: single answers, watches and uploads."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from random import Random
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from durable_service.client.errors import DurableError
from service_common.client_errors import CallError
from service_common.clocks import Clock
from service_common.deadlines import within
from service_common.errors import ServiceError
from service_common.statuses import error_from_call
from service_common.unary_calls import (
    Method,
    RequestSigner,
    UnaryCalls,
    as_it_is,
    may_help_again,
    pause_before,
)

ResponseT = TypeVar("ResponseT", bound=Message)

SILENCE_SECONDS: Final = 45.0
"""Every stream says something each 15 seconds: one that is silent for this long is dead."""

_UPLOAD_SECONDS: Final = 60.0
_UPLOAD_ATTEMPTS: Final = 3
# Pauses grow no more after that many failures.
_PAUSES_AT_MOST: Final = 8


class Calls(UnaryCalls):
    """Calls the service as one principal; what is refused comes as a `DurableError`.

    Attributes:
        clock: Times the pauses between attempts, and whatever waits by calls.
        random: Jitter of those pauses.
    """

    def __init__(
        self,
        channel: Callable[[], grpc.aio.Channel],
        signer: RequestSigner,
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        """Prepare; the channel is made for the first call.

        Args:
            channel: Makes the channel.
            signer: Signs every attempt.
            clock: Times the pauses between attempts.
            random: Jitter of the pauses.
        """
        self.clock = clock
        self.random = random
        self._shared: grpc.aio.Channel | None = None
        self._make = channel
        super().__init__(self._one_channel, signer, error_of=DurableError, clock=clock, random=random)

    async def follow(
        self, method: Method[Any, ResponseT], request: Message
    ) -> AsyncGenerator[ResponseT, None]:
        """Yield what a server stream sends, until it ends with OK.

        Raises:
            DurableError: It ended with another status, or was silent for 45 seconds.
        """
        body = request.SerializeToString()
        opened = self._one_channel().unary_stream(method.path, as_it_is, method.response.FromString)
        call = opened(body, metadata=self._signer.metadata(method, body))
        try:
            while (message := await within(self._clock, SILENCE_SECONDS, _next(call))) is not grpc.aio.EOF:
                yield message
        except grpc.aio.AioRpcError as error:
            raise DurableError(error_from_call(error)) from None
        except TimeoutError:
            raise DurableError(_silent()) from None
        finally:
            call.cancel()

    async def watch(
        self, method: Method[Any, ResponseT], request: Callable[[], Message], *, ends: bool = False
    ) -> AsyncIterator[ResponseT]:
        """Yield the frames of a watch; one that is lost or drained is asked for again.

        Args:
            method: The watch.
            request: Returns the next request, from where the last frame that was yielded has led.
            ends: The watch is over when the service ends it with OK.

        Raises:
            DurableError: It was refused.
        """
        failures = 0
        while True:
            drained = False
            try:
                async with contextlib.aclosing(self.follow(method, request())) as frames:
                    async for frame in frames:
                        failures = 0
                        yield frame
                        # Every watch that is asked for again has this frame.
                        drained = frame.HasField("drain_notice")
                        if drained:
                            break
                if ends and not drained:
                    return
                error = _ended()
            except DurableError as lost:
                if not may_help_again(lost):
                    raise
                error = lost
            failures += not drained
            if failures:
                await self.pause(min(failures, _PAUSES_AT_MOST), error)

    async def upload(self, method: Method[Any, ResponseT], messages: Sequence[Message]) -> ResponseT:
        """Send messages and return the answer; the signature covers the first of them.

        Raises:
            DurableError: It was refused, or no attempt was answered.
        """
        attempt = 1
        while True:
            try:
                return await self._upload_once(method, messages)
            except DurableError as error:
                if attempt >= _UPLOAD_ATTEMPTS or not may_help_again(error):
                    raise
                await self.pause(attempt, error)
            attempt += 1

    async def pause(self, attempt: int, error: CallError) -> None:
        """Wait before a call that has failed that often is made again."""
        await self._clock.sleep(pause_before(attempt, error, self._random))

    @contextlib.asynccontextmanager
    async def afresh(self) -> AsyncIterator["Calls"]:
        """Make the same calls on a connection of their own, for as long as the block lasts.

        After failures to connect a channel waits for seconds before it tries again. Whoever knows that the
        service is there by now need not.
        """
        fresh = Calls(self._make, self._signer, clock=self._clock, random=self._random)
        try:
            yield fresh
        finally:
            await fresh.close()

    async def close(self) -> None:
        await super().close()
        if self._shared is not None:
            await self._shared.close()

    async def _upload_once(self, method: Method[Any, ResponseT], messages: Sequence[Message]) -> ResponseT:
        bodies = [message.SerializeToString() for message in messages]
        opened = self._one_channel().stream_unary(method.path, as_it_is, method.response.FromString)
        try:
            answer: ResponseT = await opened(
                iter(bodies), metadata=self._signer.metadata(method, bodies[0]), timeout=_UPLOAD_SECONDS
            )
        except grpc.aio.AioRpcError as error:
            raise DurableError(error_from_call(error)) from None
        return answer

    def _one_channel(self) -> grpc.aio.Channel:
        if self._shared is None:
            self._shared = self._make()
        return self._shared


async def _next(call: "grpc.aio.UnaryStreamCall[Any, Any]") -> Any:
    return await call.read()


def _silent() -> ServiceError:
    return ServiceError(
        grpc.StatusCode.UNAVAILABLE, "", f"nothing was heard for {SILENCE_SECONDS:.0f} seconds"
    )


def _ended() -> DurableError:
    return DurableError(ServiceError(grpc.StatusCode.UNAVAILABLE, "", "the watch has ended"))
