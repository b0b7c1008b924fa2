"""Calls that ride the session when they can, and go by unary call when they cannot."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from relay_service.client.calls import CALL_SECONDS, Calls, Method
from relay_service.client.errors import RelayError
from service_common.session_client import BodyTooLarge, ClientStream, SessionLost

logger = logging.getLogger("sealwork.client")

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)

_TOO_LARGE: Final = "BODY_TOO_LARGE_FOR_SESSION"


class DualCalls:
    """One way to make a call, whichever way it takes.

    The twins are equal and idempotent, so what was lost with a stream is simply asked again.
    """

    def __init__(self, calls: Calls, stream: Callable[[], ClientStream | None]) -> None:
        """Prepare.

        Args:
            calls: The unary calls.
            stream: Returns the session's stream; None while there is none.
        """
        self._calls = calls
        self._stream = stream
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(
        self,
        arm: str,
        method: Method[RequestT, ResponseT],
        request: RequestT,
        *,
        timeout: float = CALL_SECONDS,
    ) -> ResponseT:
        """Make a call and return its answer.

        Args:
            arm: Name of the call on the session.
            method: Its unary twin.
            request: The request of both.
            timeout: Deadline of an attempt by unary call, in seconds.

        Raises:
            RelayError: It was refused, or no attempt was answered.
        """
        stream = self._stream()
        if stream is not None:
            try:
                answer: ResponseT = await stream.request(arm, request)
            except (SessionLost, BodyTooLarge):
                pass
            except RelayError as error:
                if error.reason != _TOO_LARGE:
                    raise
            else:
                return answer
        return await self._calls.call(method, request, timeout=timeout)

    def post(
        self,
        arm: str,
        method: Method[RequestT, ResponseT],
        request: RequestT,
        done: Callable[[ResponseT | RelayError], None],
        *,
        by_session: bool = True,
    ) -> None:
        """Make a call and hand its answer, or the refusal, to a callback.

        This is the way without a task: on a session nothing is started, only remembered.

        Args:
            arm: Name of the call on the session.
            method: Its unary twin.
            request: The request of both.
            done: Called once, unless everything is closed first.
            by_session: False when it is known that the answer is too large for the session.
        """
        stream = self._stream() if by_session else None
        if stream is not None:
            try:
                answer = stream.request(arm, request)
            except (SessionLost, BodyTooLarge):
                pass
            else:
                answer.add_done_callback(lambda future: self._answered(future, method, request, done))
                return
        self.spawn(self._by_unary(method, request, done))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the background, until `close` at the latest."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    async def close(self) -> None:
        """End what runs in the background, and close the channel of the calls."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._calls.close()

    def _answered(
        self,
        future: "asyncio.Future[ResponseT]",
        method: Method[RequestT, ResponseT],
        request: RequestT,
        done: Callable[[ResponseT | RelayError], None],
    ) -> None:
        if future.cancelled():
            return
        match future.exception():
            case None:
                done(future.result())
            case RelayError() as error if error.reason != _TOO_LARGE:
                done(error)
            case _:
                self.spawn(self._by_unary(method, request, done))

    async def _by_unary(
        self,
        method: Method[RequestT, ResponseT],
        request: RequestT,
        done: Callable[[ResponseT | RelayError], None],
    ) -> None:
        try:
            answer: ResponseT | RelayError = await self._calls.call(method, request)
        except RelayError as error:
            answer = error
        done(answer)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Without the text: it might quote what a peer has sent.
            logger.error("work in the background failed: %s", type(error).__name__)
