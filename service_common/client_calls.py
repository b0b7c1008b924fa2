"""Calls that ride a session: their numbers, and the futures that wait for the replies."""

import asyncio
from typing import Any, Final

from google.protobuf.message import Message

from service_common.client_session_types import BodyTooLarge, SessionLost, SessionPlane
from service_common.statuses import error_from_status

CALL_SECONDS: Final = 10.0


class PendingCalls:
    """The calls of one stream that have no reply yet, oldest first."""

    __slots__ = ("_next", "_plane", "_waiting")

    def __init__(self, plane: SessionPlane) -> None:
        self._plane = plane
        self._next = 1
        self._waiting: dict[int, tuple[asyncio.Future[Any], float]] = {}

    def add(
        self, arm: str, body: Message, *, now: float, inline_body_bytes: int
    ) -> "tuple[bytes, asyncio.Future[Any]]":
        """Return the serialized item of a new call, and the future of its answer.

        Raises:
            BodyTooLarge: The item is over the limit.
        """
        item = self._plane.item(call=self._plane.call(id=self._next, **{arm: body})).SerializeToString()
        if len(item) > inline_body_bytes:
            raise BodyTooLarge(arm)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._next] = (answer, now + CALL_SECONDS)
        self._next += 1
        return item, answer

    def answer(self, reply: Any) -> None:
        """Hand a reply to the call that it answers; a reply nobody waits for is dropped."""
        waiting = self._waiting.pop(reply.id, None)
        if waiting is None or waiting[0].done():
            return
        arm = reply.WhichOneof("outcome")
        if arm is None:
            # An answer of a newer server: the unary twin has one that is known here.
            waiting[0].set_exception(SessionLost("the answer is not known here"))
        elif arm == "error":
            waiting[0].set_exception(self._plane.error_of(error_from_status(reply.error)))
        else:
            waiting[0].set_result(getattr(reply, arm))

    @property
    def next_deadline(self) -> float:
        """When the oldest call is given up, by the monotonic clock; infinite when none waits."""
        return next(iter(self._waiting.values()))[1] if self._waiting else float("inf")

    def expire(self, now: float) -> None:
        """Give up the calls whose time is over, all of them at infinity."""
        while self._waiting and self.next_deadline <= now:
            answer, _ = self._waiting.pop(next(iter(self._waiting)))
            if not answer.done():
                answer.set_exception(SessionLost("no answer came on the stream"))
