"""Signed unary calls: complete without a stream, and the second way of every call that rides one."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Generic, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from service_common.client_errors import CallError
from service_common.clocks import Clock
from service_common.errors import ServiceError
from service_common.signing import SIGNING_PROTOCOL, NoSigner, Signer, request_metadata
from service_common.signing_keys import BAD_SIGNATURE, SigningKeys
from service_common.statuses import error_from_call

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)

CALL_SECONDS: Final = 10.0
ATTEMPTS: Final = 4

_BASE_SECONDS: Final = 0.2
_CAP_SECONDS: Final = 5.0
# A nonce is used up by a request that was lost on its way back, and by the library's own repeats.
# CANCELLED comes from a server that stops during the call: what the caller cancels itself is no error.
_REPEATED_CODES: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
)
_REPEATED_REASONS: Final = frozenset({"CONTENTION", "REPLAYED"})


@dataclass(frozen=True, slots=True)
class Method(Generic[RequestT, ResponseT]):
    """A unary method.

    Attributes:
        path: Full name with its leading slash.
        request: Class of the request.
        response: Class of the response.
    """

    path: str
    request: type[RequestT]
    response: type[ResponseT]


class RequestSigner:
    """Signs the requests of one caller, each with a fresh nonce.

    Attributes:
        keys: The keys of the caller, and which of them is in use.
    """

    def __init__(
        self,
        caller: str,
        signer: Signer | SigningKeys,
        clock: Clock,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Sign as `caller`.

        Raises:
            ValueError: The caller's id cannot travel as metadata: it is not printable ASCII.
        """
        self.keys = signer if isinstance(signer, SigningKeys) else SigningKeys([signer])
        self._caller = caller
        self._clock = clock
        self._random_bytes = random_bytes
        request_metadata(self.keys.current, caller, "/", b"", clock.now_ms(), random_bytes)

    def metadata(
        self, method: Method[Any, Any], body: bytes, position: int | None = None
    ) -> tuple[tuple[str, str], ...]:
        """Return the metadata that proves who sends exactly these bytes to this method.

        Args:
            method: The method.
            body: The serialized request.
            position: Of the key that signs; by default the one in use.
        """
        signer = self.keys.current if position is None else self.keys.at(position)
        return request_metadata(
            signer, self._caller, method.path, body, self._clock.now_ms(), self._random_bytes
        )


class CertifiedRequests(RequestSigner):
    """Signs nothing: the client certificate of the connection says who calls."""

    def __init__(self) -> None:
        self.keys = SigningKeys([NoSigner()])

    def metadata(
        self, method: Method[Any, Any], body: bytes, position: int | None = None
    ) -> tuple[tuple[str, str], ...]:
        del method, body, position
        return (("sealwork-protocol", SIGNING_PROTOCOL),)


class UnaryCalls:
    """Makes unary calls as one caller.

    Every method here is idempotent, by an id in its request; a call that may not have arrived is made again.
    """

    def __init__(
        self,
        channel: Callable[[], grpc.aio.Channel],
        signer: RequestSigner,
        *,
        error_of: Callable[[ServiceError], CallError],
        clock: Clock,
        random: Random,
    ) -> None:
        """Prepare; the channel is made for the first call.

        Args:
            channel: Makes the channel.
            signer: Signs every attempt.
            error_of: What a caller gets for a status.
            clock: Times the pauses between attempts.
            random: Jitter of the pauses.
        """
        self._new_channel = channel
        self._signer = signer
        self._error_of = error_of
        self._clock = clock
        self._random = random
        self._channel: grpc.aio.Channel | None = None
        self._methods: dict[str, grpc.aio.UnaryUnaryMultiCallable[Any, Any]] = {}

    async def call(
        self,
        method: Method[RequestT, ResponseT],
        request: RequestT,
        *,
        timeout: float = CALL_SECONDS,
        attempts: int = ATTEMPTS,
    ) -> ResponseT:
        """Make a call, and make it again when it got no answer.

        Args:
            method: Which.
            request: Its request; the very bytes that are signed are sent.
            timeout: Deadline of each attempt, in seconds.
            attempts: How often to try in all.

        Raises:
            CallError: It was refused, or no attempt was answered.
        """
        body = request.SerializeToString()
        attempt = 1
        keys = self._signer.keys
        used, refused = keys.position, set[int]()
        while True:
            try:
                answer = await self._once(method, body, timeout, used)
            except CallError as error:
                if error.reason == BAD_SIGNATURE:
                    keys.refused(used)
                    refused.add(used)
                following = keys.untried(refused)
                if following is None:
                    raise
                used = following
                if error.reason == BAD_SIGNATURE:
                    continue
                if attempt >= attempts or not may_help_again(error):
                    raise
                await self._clock.sleep(pause_before(attempt, error, self._random))
            else:
                if refused:
                    keys.accepted(used)
                return answer
            attempt += 1

    async def close(self) -> None:
        """Close the channel; calls under way are cancelled."""
        if self._channel is not None:
            await self._channel.close()

    async def _once(
        self, method: Method[Any, ResponseT], body: bytes, timeout: float, position: int
    ) -> ResponseT:
        metadata = self._signer.metadata(method, body, position)
        try:
            response: ResponseT = await self._callable(method)(body, metadata=metadata, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            raise self._error_of(error_from_call(error)) from None
        return response

    def _callable(self, method: Method[Any, Any]) -> "grpc.aio.UnaryUnaryMultiCallable[Any, Any]":
        known = self._methods.get(method.path)
        if known is None:
            if self._channel is None:
                self._channel = self._new_channel()
            known = self._channel.unary_unary(method.path, as_it_is, method.response.FromString)
            self._methods[method.path] = known
        return known


def may_help_again(error: CallError) -> bool:
    """Tell whether the same call may be answered when it is made again."""
    return error.code in _REPEATED_CODES or error.reason in _REPEATED_REASONS


def pause_before(attempt: int, error: CallError, random: Random) -> float:
    """Return how long to wait after that many attempts, in seconds."""
    bound = min(_CAP_SECONDS, _BASE_SECONDS * 2**attempt)
    return (error.retry_after_ms or 0) / 1000 + random.uniform(0, bound)


def as_it_is(body: bytes) -> bytes:
    """Serialize what is serialized: a signature covers exact bytes."""
    return body
