"""The orderly end of a server."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Final, Protocol

import grpc
import structlog

from service_common.clocks import Clock
from service_common.deadlines import wait_all
from service_common.errors import ServiceError
from service_common.health import ServingState

_log: Final = structlog.get_logger(__name__)

# Kept back from the grace for calls that are still being answered when the sessions have ended.
_STOP_SECONDS: Final = 5.0
_RETRY_AFTER_MS: Final = 1_000


class Stoppable(Protocol):
    """A `grpc.aio.Server`, as far as a drain is concerned."""

    async def stop(self, grace: float | None) -> None: ...


class Drain:
    """Ends a process within its grace, without an error for anyone who listens.

    In this order: health says NOT_SERVING and new sessions are refused; everyone registered ends what it
    holds, sessions for one, while unary calls are served as before; the servers take no more calls and those
    in flight finish. A second signal ends the process at once.
    """

    def __init__(self, clock: Clock, state: ServingState, *, grace_ms: int = 30_000) -> None:
        self._clock = clock
        self._state = state
        self._grace_seconds = grace_ms / 1000
        self._endings: list[Callable[[], Awaitable[None]]] = []
        self._begun = asyncio.Event()
        self._signalled = False

    @property
    def draining(self) -> bool:
        """Whether the end has begun."""
        return self._begun.is_set()

    def register(self, ending: Callable[[], Awaitable[None]]) -> None:
        """Have `ending` called when the drain begins; it returns when what it stands for has ended.

        All endings run at once. One that takes longer than the grace allows is cancelled.
        """
        self._endings.append(ending)

    def refuse_if_draining(self) -> None:
        """Turn away what would be long-lived.

        Raises:
            ServiceError: UNAVAILABLE/SERVER_DRAINING, once the end has begun.
        """
        if self.draining:
            raise draining_error()

    def install_signal_handlers(self) -> None:
        """Begin at SIGTERM or SIGINT, and exit at once, with status 1, at the second of them."""
        loop = asyncio.get_running_loop()

        def on_signal(_signal: int, _frame: FrameType | None) -> None:
            if self._signalled:
                os._exit(1)
            self._signalled = True
            loop.call_soon_threadsafe(self.begin)

        # Not the loop's own handlers: those run as callbacks, and a loop that is stuck would ignore the
        # second signal too. Nor the default action, which the kernel withholds from process 1 of a container.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, on_signal)

    def begin(self) -> None:
        """Begin the end, as a first signal does."""
        if not self.draining:
            _log.info("drain begins", grace_ms=round(self._grace_seconds * 1000))
            self._state.begin_shutdown()
            self._begun.set()

    async def begun(self) -> None:
        """Return when the end begins."""
        await self._begun.wait()

    async def run(self, *servers: Stoppable) -> None:
        """Wait for the end to begin and carry it out; the servers have stopped when this returns."""
        await self.begun()
        started = self._clock.monotonic()
        await self._end_what_is_registered()
        # Those who watch health have been told NOT_SERVING; each open stream would cost the whole grace.
        self._state.close()
        remaining = max(1.0, self._grace_seconds - (self._clock.monotonic() - started))
        await self._stop(servers, remaining)
        _log.info("drain ends")

    async def _end_what_is_registered(self) -> None:
        seconds = max(self._grace_seconds - _STOP_SECONDS, self._grace_seconds / 2)
        tasks = [asyncio.ensure_future(_ended(ending)) for ending in self._endings]
        for late in await wait_all(self._clock, seconds, tasks):
            _log.warning("cut off: it did not end within the grace")
            late.cancel()

    async def _stop(self, servers: tuple[Stoppable, ...], seconds: float) -> None:
        tasks = [asyncio.ensure_future(server.stop(seconds)) for server in servers]
        # `stop` cancels what is left after its grace and waits for the handlers to agree; one that swallows
        # its cancellation must not keep the process.
        if await wait_all(self._clock, seconds + 1.0, tasks):
            _log.warning("cut off: a handler did not end when it was cancelled")


def draining_error() -> ServiceError:
    """Return what sessions are refused and ended with during a drain."""
    return ServiceError(
        grpc.StatusCode.UNAVAILABLE,
        "SERVER_DRAINING",
        "the server is shutting down: connect anew",
        retry_after_ms=_RETRY_AFTER_MS,
    )


async def _ended(ending: Callable[[], Awaitable[None]]) -> None:
    try:
        await ending()
    except Exception as error:  # noqa: BLE001 - whatever fails here, the rest still has to end in order
        _log.error("an ending failed", exc_info=error)
