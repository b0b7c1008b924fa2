"""Open watches: what wakes them, and what ends them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc.aio

from durable_service.planes.refusals import too_many_watches
from durable_service.principal_keys import principal_revoked
from durable_service.principals import Principals
from service_common.clocks import Clock
from service_common.deadlines import within
from service_common.drain import draining_error
from service_common.errors import ServiceError
from service_common.sessions.endings import slow_consumer

Context = grpc.aio.ServicerContext[Any, Any]

MOST_A_PRINCIPAL = 64
# Between a DrainNotice and the end of the watch that it was sent on.
DRAIN_MS = 5_000
_PROGRESS_SECONDS = 60.0


class Watch:
    """One call that follows something."""

    def __init__(self, principal_id: str, context: Context, clock: Clock) -> None:
        self.principal_id = principal_id
        self.draining = False
        self._context = context
        self._clock = clock
        self._woken = asyncio.Event()
        self._error: ServiceError | None = None

    def wake(self, *_: object) -> None:
        """There may be something to tell."""
        self._woken.set()

    def end(self, error: ServiceError) -> None:
        """Ends the call with this error, as soon as it waits."""
        self._error = self._error or error
        self._woken.set()

    async def wait(self, seconds: float) -> bool:
        """Waits for news, at most that long; whether there may be some.

        Raises:
            ServiceError: what the watch was ended with.
        """
        timer = self._clock.call_later(seconds, self._woken.set)
        started = self._clock.monotonic()
        try:
            await self._woken.wait()
        finally:
            timer.cancel()
        self._woken.clear()
        self.raise_end()
        return self._clock.monotonic() - started < seconds

    def raise_end(self) -> None:
        """Raises what the watch was ended with, if it was."""
        if self._error is not None:
            raise self._error

    async def send(self, frame: object) -> None:
        """Writes a frame.

        Raises:
            ServiceError: SLOW_CONSUMER when the caller does not take it.
        """
        try:
            await within(self._clock, _PROGRESS_SECONDS, self._context.write(frame))
        except TimeoutError:
            raise slow_consumer() from None


class Watches:
    """All watches of this process."""

    def __init__(self, clock: Clock) -> None:
        self.leaving = asyncio.Event()
        self._clock = clock
        self._watches: set[Watch] = set()
        self._counts: Counter[str] = Counter()
        self._all_ended = asyncio.Event()
        self._waits: set[Callable[[], object]] = set()

    def __len__(self) -> int:
        return len(self._watches)

    @contextmanager
    def open(self, principal_id: str, context: Context, *, limited: bool = True) -> Iterator[Watch]:
        """A watch for as long as the block lasts.

        Args:
            limited: False for what ends by itself and needs no place among those that follow.

        Raises:
            ServiceError: TOO_MANY_SESSIONS, SERVER_DRAINING.
        """
        if self.leaving.is_set():
            raise draining_error()
        if limited and self._counts[principal_id] >= MOST_A_PRINCIPAL:
            raise too_many_watches(MOST_A_PRINCIPAL)
        watch = Watch(principal_id, context, self._clock)
        self._watches.add(watch)
        self._counts[principal_id] += limited
        try:
            yield watch
        finally:
            self._watches.discard(watch)
            self._counts[principal_id] -= limited
            if not self._counts[principal_id]:
                del self._counts[principal_id]
            if not self._watches:
                self._all_ended.set()

    @contextmanager
    def ending(self, wake: Callable[[], object]) -> Iterator[None]:
        """Calls `wake` when a drain begins within the block: for unary calls that wait."""
        self._waits.add(wake)
        try:
            yield
        finally:
            self._waits.discard(wake)

    def principals_changed(self, old: Principals, new: Principals) -> None:
        """Ends the watches of principals that are not what they were."""
        for watch in tuple(self._watches):
            error = changed_credential(old, new, watch.principal_id)
            if error is not None:
                watch.end(error)

    async def drain(self) -> None:
        """Asks every watch to move, and ends those that stay; returns when all have ended."""
        self.leaving.set()
        self._all_ended.clear()
        for wake in tuple(self._waits):
            wake()
        for watch in tuple(self._watches):
            watch.draining = True
            watch.wake()
            self._clock.call_later(DRAIN_MS / 1000, _ending(watch))
        if self._watches:
            await self._all_ended.wait()


def changed_credential(old: Principals, new: Principals, principal_id: str) -> ServiceError | None:
    """Why a stream of this principal cannot go on, None when nothing about the principal has changed.

    One that was cut off or has another credential is told so. One that may see or do other things than before
    connects anew, and is judged anew.
    """
    before, after = old.get(principal_id), new.get(principal_id)
    if before == after:
        return None
    if after is None or after.disabled:
        return principal_revoked()
    if before is not None and (before.key, before.spiffe_id) != (after.key, after.spiffe_id):
        return principal_revoked()
    return draining_error()


def _ending(watch: Watch) -> Callable[[], None]:
    return lambda: watch.end(draining_error())
