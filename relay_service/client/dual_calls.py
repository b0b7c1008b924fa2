"""Calls that ride the session when they can, and go by unary call when they cannot."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import Message

from relay_service.client.calls import Method
from relay_service.client.errors import RelayError
from service_common.dual_calls import TOO_LARGE
from service_common.dual_calls import DualCalls as CommonDualCalls
from service_common.session_client import BodyTooLarge, SessionLost

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


class DualCalls(CommonDualCalls):
    """One way to make a call of the relay, whichever way it takes."""

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
            case RelayError() as error if error.reason != TOO_LARGE:
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
