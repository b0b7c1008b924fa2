"""A client's session: one stream at a time, opened again whenever it is lost.

Losing a stream loses nothing durable: leases, notices and tasks outlive it, and the hello of the next stream
says what this client holds. Only a refusal that another try cannot change ends a session.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from random import Random
from typing import Final

import grpc
import grpc.aio

from service_common.client_backoff import Backoff
from service_common.client_handshake import open_stream
from service_common.client_session_types import (
    FINAL_REASONS,
    BodyTooLarge,
    EndCause,
    Hello,
    SessionLost,
    SessionPlane,
    StreamEnd,
    StreamLimits,
    seconds_of,
)
from service_common.client_stream import ClientStream, SessionHandler
from service_common.clocks import Clock
from service_common.deadlines import within
from service_common.errors import ServiceError
from service_common.signing import Signer

__all__ = [
    "FINAL_REASONS",
    "BodyTooLarge",
    "ClientStream",
    "EndCause",
    "Hello",
    "SessionClient",
    "SessionHandler",
    "SessionLost",
    "SessionPlane",
    "StreamEnd",
    "StreamLimits",
]

logger = logging.getLogger("sealwork.session")

_SUPERSEDED: Final = "SESSION_SUPERSEDED"
_SUPERSEDED_SECONDS: Final = 30.0
_GOOD_LIFE_SECONDS: Final = 60.0
_FAILURES_PER_CHANNEL: Final = 5


class SessionClient:
    """Keeps one stream open.

    Attributes:
        failure: Why there was no stream at the last try; None once one has been opened.
    """

    def __init__(
        self,
        plane: SessionPlane,
        handler: SessionHandler,
        channel: Callable[[], grpc.aio.Channel],
        *,
        caller: str,
        signer: Signer,
        clock: Clock,
        random: Random,
        final_reasons: frozenset[str] = FINAL_REASONS,
    ) -> None:
        """Prepare; nothing is connected before `start`.

        Args:
            plane: Which stream to open.
            handler: What to do with it.
            channel: Makes a channel; asked again after five failures and for every move to a new stream.
            caller: Whom the hello names.
            signer: The caller's identity.
            clock: Times everything.
            random: Jitter.
            final_reasons: Refusals after which no other try is made.
        """
        self.failure: ServiceError | None = None
        self._plane = plane
        self._handler = handler
        self._new_channel = channel
        self._caller = caller
        self._signer = signer
        self._clock = clock
        self._backoff = Backoff(random)
        self._random = random
        self._final_reasons = final_reasons
        self._channel: grpc.aio.Channel | None = None
        self._stream: ClientStream | None = None
        self._wait_at_least = 0.0
        self._running: asyncio.Task[None] | None = None
        self._retiring: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._closing = False
        self._refusal: ServiceError | None = None

    @property
    def stream(self) -> ClientStream | None:
        """The stream in use; None while there is none."""
        return self._stream if self._stream is not None and self._stream.end is None else None

    def start(self, *, at_once: bool = False) -> None:
        """Connect, and stay connected.

        Args:
            at_once: Leave out the random delay before the first try, as for a person who waits.
        """
        self._running = asyncio.get_running_loop().create_task(self._run(at_once=at_once))

    async def opened(self) -> ClientStream:
        """Return the stream in use, once there is one.

        Raises:
            Exception: There will be none any more; the plane's own error for it.
        """
        while (stream := self.stream) is None:
            if self._refusal is not None:
                raise self._plane.error_of(self._refusal)
            await self._changed.wait()
        return stream

    async def close(self, reason: str) -> None:
        """Say goodbye and end everything; returns when nothing is left running."""
        self._closing = True
        try:
            if self._stream is not None:
                await self._stream.goodbye(reason)
        finally:
            tasks = [task for task in (self._running, *self._retiring) if task is not None]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            await self._close_channel()

    # -- one stream after the other -----------------------------------------------------

    async def _run(self, *, at_once: bool) -> None:
        try:
            stream = await self._connect(at_once=at_once)
            while True:
                self._use(stream)
                await stream.moving.wait()
                stream = await self._successor_of(stream)
        except ServiceError as error:
            self._refuse(error)
        except Exception as error:  # noqa: BLE001 - whoever waits for a stream must hear of it
            self._refuse(ServiceError(grpc.StatusCode.INTERNAL, "", f"{type(error).__name__} in this client"))
        finally:
            if self._stream is not None:
                self._stream.abandon()

    def _use(self, stream: ClientStream) -> None:
        self._stream = stream
        self.failure = None
        self._wait_at_least = 0.0
        # Before its first item is handled: the handler tells by it which stream is in use.
        self._handler.opened(stream)
        stream.start()
        self._tell_waiters()

    async def _successor_of(self, stream: ClientStream) -> ClientStream:
        """Return the next stream, once this one has ended or has been asked to move."""
        if stream.end is not None or stream.drain is None:
            await stream.ended.wait()
            self._account_for(stream)
            return await self._connect(at_once=False)
        wait = seconds_of(stream.drain.reconnect_after)
        logger.info("the server asks to move to a new stream in %.1f s", wait)
        with contextlib.suppress(TimeoutError):
            await within(self._clock, wait, _ended(stream))
        # The next one is opened before this one is closed, so that there is no instant without a stream, and
        # on a connection of its own: the present one leads to the server that is to be left.
        channel, self._channel = self._channel, None
        try:
            return await self._connect(at_once=True)
        finally:
            self._retire(stream, channel)

    def _retire(self, stream: ClientStream, channel: grpc.aio.Channel | None) -> None:
        task = asyncio.get_running_loop().create_task(_take_leave(stream, channel))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def _account_for(self, stream: ClientStream) -> None:
        """Take note of how the stream in use ended.

        Raises:
            ServiceError: No other try can change it.
        """
        self._stream = None
        if stream.end is None or self._closing:
            return
        if stream.end.lived_seconds >= _GOOD_LIFE_SECONDS:
            self._backoff.reset()
        else:
            self._backoff.fail()
        logger.info("the stream ended: %s", stream.end.error or stream.end.cause.value)
        self._handler.lost(stream.end)
        if stream.end.error is not None:
            self._note(stream.end.error)

    # -- connecting ---------------------------------------------------------------------

    async def _connect(self, *, at_once: bool) -> ClientStream:
        while True:
            if not at_once:
                await self._clock.sleep(self._backoff.delay(self._wait_at_least))
            at_once = False
            try:
                return await self._open()
            except ServiceError as error:
                await self._fail(error)

    async def _open(self) -> ClientStream:
        if self._channel is None:
            self._channel = self._new_channel()
        return await open_stream(
            self._channel,
            self._plane,
            self._handler,
            self._handler.hello,
            caller=self._caller,
            signer=self._signer,
            clock=self._clock,
        )

    async def _fail(self, error: ServiceError) -> None:
        self.failure = error
        self._backoff.fail()
        logger.info("no stream could be opened (try %d): %s", self._backoff.failures, error)
        replaced = self._stream
        if replaced is not None and replaced.end is not None:
            # It was to be replaced, and is gone before there is another one.
            self._stream = None
            self._handler.lost(replaced.end)
        self._note(error)
        if self._backoff.failures % _FAILURES_PER_CHANNEL == 0:
            # Resolve the name anew; what the library remembers of it may be what is wrong.
            await self._close_channel()

    def _note(self, error: ServiceError) -> None:
        """Keep what the server asks for.

        Raises:
            ServiceError: No other try can change it.
        """
        if error.reason in self._final_reasons:
            raise error
        self._wait_at_least = (error.retry_after_ms or 0) / 1000
        if error.reason == _SUPERSEDED:
            # Another process has this identity: two that reconnect at once would fight for ever.
            floor = max(_SUPERSEDED_SECONDS, self._wait_at_least)
            self._wait_at_least = floor + self._random.uniform(0, _SUPERSEDED_SECONDS)

    async def _close_channel(self) -> None:
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close()

    def _refuse(self, error: ServiceError) -> None:
        # Not louder: whoever uses the session is told, and tells.
        logger.info("the session has ended for good: %s", error)
        self._refusal = error
        if self._stream is not None:
            self._stream.abandon()
            self._stream = None
        self._handler.refused(error)
        self._tell_waiters()

    def _tell_waiters(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


async def _ended(stream: ClientStream) -> None:
    await stream.ended.wait()


async def _take_leave(stream: ClientStream, channel: grpc.aio.Channel | None) -> None:
    try:
        await stream.goodbye("moved to a new stream")
    finally:
        if channel is not None:
            await channel.close()
