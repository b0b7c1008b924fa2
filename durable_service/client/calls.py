"""Signed calls of the durable service: single answers, watches and uploads."""

from collections.abc import AsyncIterator, Callable, Sequence
from random import Random
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from durable_service.client.errors import DurableError
from service_common.client_errors import CallError
from service_common.clocks import Clock
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

_UPLOAD_SECONDS: Final = 60.0
_UPLOAD_ATTEMPTS: Final = 3


class Calls(UnaryCalls):
    """Calls the service as one principal; what is refused comes as a `DurableError`."""

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
        self._shared: grpc.aio.Channel | None = None
        self._make = channel
        super().__init__(self._one_channel, signer, error_of=DurableError, clock=clock, random=random)

    async def follow(self, method: Method[Any, ResponseT], request: Message) -> AsyncIterator[ResponseT]:
        """Yield what a server stream sends, until it ends with OK.

        Raises:
            DurableError: It ended with another status.
        """
        body = request.SerializeToString()
        opened = self._one_channel().unary_stream(method.path, as_it_is, method.response.FromString)
        call = opened(body, metadata=self._signer.metadata(method, body))
        try:
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as error:
            raise DurableError(error_from_call(error)) from None
        finally:
            call.cancel()

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
