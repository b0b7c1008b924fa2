"""Calls that ride the session when they can, and go by unary call when they cannot."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from service_common.client_errors import CallError
from service_common.session_client import BodyTooLarge, ClientStream, SessionLost
from service_common.unary_calls import CALL_SECONDS, Method, UnaryCalls

logger = logging.getLogger("sealwork.client")

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)

TOO_LARGE: Final = "BODY_TOO_LARGE_FOR_SESSION"


class DualCalls:
    """One way to make a call, whichever way it takes.

    The twins are equal and idempotent, so what was lost with a stream is simply asked again.
    """

    def __init__(self, calls: UnaryCalls, stream: Callable[[], ClientStream | None]) -> None:
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
            CallError: It was refused, or no attempt was answered.
        """
        stream = self._stream()
        if stream is not None:
            try:
                answer: ResponseT = await stream.request(arm, request)
            except (SessionLost, BodyTooLarge):
                pass
            except CallError as error:
                if error.reason != TOO_LARGE:
                    raise
            else:
                return answer
        return await self._calls.call(method, request, timeout=timeout)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the background, until `end` or `close` at the latest."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    async def end(self) -> None:
        """End what runs in the background; the unary calls can still be made."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """End what runs in the background, and close the channel of the calls."""
        await self.end()
        await self._calls.close()

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Without the text: it might quote what a peer has sent.
            logger.error("work in the background failed: %s", type(error).__name__)
