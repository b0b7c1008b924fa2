"""The connection that carries commands: shared by all callers, batched, and restored when lost."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from relay_service.store.base import StoreUnavailable
from relay_service.store.valkey_wire import (
    FAILURES,
    DemotedError,
    Part,
    ResponseError,
    Wire,
    absence_of,
    command,
)

_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 2.0
_CLOSING_SECONDS = 1.0

_LOST: tuple[type[Exception], ...] = (StoreUnavailable, *FAILURES)

_logger = logging.getLogger(__name__)

Answer = asyncio.Future[Any]
Observer = Callable[[Any], None]


def waiting_seconds(attempt: int) -> float:
    """How long to wait before an attempt to connect: full jitter, so that replicas do not crowd."""
    return random.uniform(0.0, min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2**attempt))  # noqa: S311


class CommandConnection:
    """Commands given within one turn of the event loop travel together.

    Answers come in the order of the commands. While there is no connection, commands fail at once:
    those that wait for an answer when it is lost may or may not have been carried out.
    """

    def __init__(
        self,
        make_wire: Callable[[], Wire],
        prepare: Callable[[Wire], Awaitable[None]],
        answer_seconds: float = 15.0,
        on_moved: Callable[[], None] = lambda: None,
    ) -> None:
        """Makes it; `start` connects.

        A server that has become a replica is left, and the address looked up anew with each attempt.

        Args:
            prepare: run on each new connection before it carries commands.
            answer_seconds: a server that is silent for longer is taken for lost.
            on_moved: told when a primary is found after a server was left that is none.
        """
        self._make_wire = make_wire
        self._prepare = prepare
        self._answer_seconds = answer_seconds
        self._on_moved = on_moved
        self._demoted = False
        self._wire: Wire | None = None
        self._connected = asyncio.Event()
        self._unsent: list[tuple[bytes, Answer, Observer | None]] = []
        self._unanswered: deque[tuple[Answer, Observer | None, float]] = deque()
        self._keeper: asyncio.Task[None] | None = None
        self._sender: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._patience: asyncio.Timeout | None = None
        self._last_failure = "no attempt yet"

    async def start(self, seconds: float) -> None:
        """Connects and stays connected until `close`.

        Raises:
            StoreUnavailable: no connection within this time; attempts have ended.
        """
        self._keeper = asyncio.create_task(self._keep())
        try:
            await self.connected(seconds)
        except StoreUnavailable:
            await self.close()
            raise

    async def connected(self, seconds: float) -> None:
        """Returns when there is a connection.

        Raises:
            StoreUnavailable: none within this time.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._connected.wait()
        except TimeoutError:
            raise StoreUnavailable(f"no connection to the server: {self._last_failure}") from None

    async def close(self) -> None:
        """Ends the connection; what waits for an answer fails."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            self._keeper = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def submit(self, *parts: Part, observer: Observer | None = None) -> Answer:
        """Sends a command; the answer comes later.

        Commands are carried out in the order in which they are given here.

        Args:
            observer: sees the answer before anybody else, in order, and also when the caller has
                stopped waiting for it.

        Raises:
            StoreUnavailable: there is no connection.
        """
        if self._wire is None:
            raise StoreUnavailable(f"no connection to the server: {self._last_failure}")
        answer = asyncio.get_running_loop().create_future()
        self._unsent.append((command(*parts), answer, observer))
        if self._sender is None:
            # The task begins in the next turn of the loop, when this turn's commands are all here.
            self._sender = asyncio.create_task(self._send())
        return answer

    async def call(self, *parts: Part) -> Any:
        """Sends a command and waits for its answer.

        Raises:
            StoreUnavailable: no connection, it was lost, or the server cannot serve.
            ResponseError: the server refused the command.
        """
        return await self.submit(*parts)

    async def _keep(self) -> None:
        attempt = 0
        while True:
            wire = self._make_wire()
            try:
                async with asyncio.timeout(self._answer_seconds):
                    await wire.connect()
                    await self._prepare(wire)
                attempt = 0
                self._note_primary()
                await self._serve(wire)
            except _LOST as error:
                self._demoted = self._demoted or isinstance(error, DemotedError)
                self._last_failure = f"{type(error).__name__}: {error}"
                _logger.warning("the connection to the store failed: %s", self._last_failure)
            except Exception as error:
                # Whatever it was, another connection begins with a clean slate.
                self._last_failure = type(error).__name__
                _logger.exception("the connection to the store failed")
            finally:
                await _end(wire)
            await asyncio.sleep(waiting_seconds(attempt))
            attempt += 1

    async def _serve(self, wire: Wire) -> None:
        """Reads answers until the connection is lost, which is an exception."""
        self._wire = wire
        self._connected.set()
        try:
            async with asyncio.timeout(None) as self._patience:
                while True:
                    absence = self._settle(await _next_answer(wire))
                    if isinstance(absence, DemotedError):
                        raise absence
        finally:
            self._wire = self._patience = None
            self._connected.clear()
            self._give_up()

    async def _send(self) -> None:
        try:
            while self._unsent and self._wire is not None and self._wire.is_connected:
                await self._send_batch(self._wire)
        finally:
            self._sender = None

    async def _send_batch(self, wire: Wire) -> None:
        batch, self._unsent = self._unsent, []
        now = asyncio.get_running_loop().time()
        self._unanswered.extend((answer, observer, now) for _, answer, observer in batch)
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(self._answer_seconds, self._look)
        try:
            await wire.send_packed_command([packed for packed, _, _ in batch], check_health=False)
        except FAILURES as error:
            # Reading finds out as well, and ends the connection.
            _logger.warning("sending to the store failed: %s", type(error).__name__)

    def _settle(self, reply: object) -> StoreUnavailable | None:
        """Hands an answer to its caller; the answer of a server that cannot serve is returned too."""
        answer, observer, _ = self._unanswered.popleft()
        absence = absence_of(reply) if isinstance(reply, ResponseError) else None
        if observer is not None and not isinstance(reply, ResponseError):
            _show(observer, reply)
        if answer.done():
            return absence
        if isinstance(reply, ResponseError):
            answer.set_exception(absence or reply)
        else:
            answer.set_result(reply)
        return absence

    def _note_primary(self) -> None:
        if self._demoted:
            self._demoted = False
            self._on_moved()

    def _look(self) -> None:
        """Ends a connection whose server has been silent for too long."""
        self._alarm = None
        if not self._unanswered:
            return
        loop = asyncio.get_running_loop()
        waited = loop.time() - self._unanswered[0][2]
        if waited < self._answer_seconds:
            self._alarm = loop.call_later(self._answer_seconds - waited, self._look)
        elif self._patience is not None:
            _logger.warning("the store has not answered for %.0f s", waited)
            self._patience.reschedule(loop.time())

    def _give_up(self) -> None:
        """Whatever waits fails: nobody knows whether it was carried out."""
        waiting = [entry[0] for entry in self._unanswered] + [entry[1] for entry in self._unsent]
        self._unanswered.clear()
        self._unsent = []
        for answer in waiting:
            if not answer.done():
                answer.set_exception(StoreUnavailable("the connection to the server was lost"))
                # Nobody may be waiting any more; that is no reason to complain about the exception.
                answer.exception()


def _show(observer: Observer, reply: object) -> None:
    try:
        observer(reply)
    except Exception:
        # It must not stand between the other callers and their answers.
        _logger.exception("an answer of the store could not be observed")


async def _next_answer(wire: Wire) -> object:
    try:
        return await wire.read_response(disconnect_on_error=False)
    except ResponseError as error:
        return error


async def _end(wire: Wire) -> None:
    try:
        async with asyncio.timeout(_CLOSING_SECONDS):
            await wire.disconnect(nowait=True)
    except FAILURES:
        _logger.debug("a lost connection could not be closed in order")
