"""Calls that wait for a pairing to be decided, and what wakes them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from service_common.clocks import Clock

WATCHERS_PER_PAIRING = 4
# An expiry by the store's clock may come a little after the same span by ours.
_LEAST_SECONDS = 0.05


class TooManyWatchers(Exception):  # noqa: N818 - it names a state
    """This pairing is waited for often enough."""


class PairingWatcher:
    """One call that waits.

    Attributes:
        waiting: its time is running; in between it looks how the pairing stands, and tells.
    """

    def __init__(self, identity: bytes, clock: Clock) -> None:
        self.identity = identity
        self.waiting = False
        self._clock = clock
        self._news = asyncio.Event()

    def wake(self) -> None:
        """There may be news."""
        self._news.set()

    async def news(self, seconds: float) -> None:
        """Returns when there may be news, or after that time."""
        timer = self._clock.call_later(max(_LEAST_SECONDS, seconds), self._news.set)
        self.waiting = True
        try:
            await self._news.wait()
        finally:
            self.waiting = False
            timer.cancel()
        self._news.clear()


class PairingWatchers:
    """All calls of this relay that wait, by pairing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watchers: dict[str, list[PairingWatcher]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._watchers.values()))

    @contextmanager
    def watching(self, pairing_id: str, identity: bytes) -> Iterator[PairingWatcher]:
        """Waits for one pairing as long as the block lasts.

        Raises:
            TooManyWatchers: others do already.
        """
        watchers = self._watchers.setdefault(pairing_id, [])
        if len(watchers) >= WATCHERS_PER_PAIRING:
            raise TooManyWatchers
        watcher = PairingWatcher(identity, self._clock)
        watchers.append(watcher)
        try:
            yield watcher
        finally:
            watchers.remove(watcher)
            if not watchers:
                del self._watchers[pairing_id]

    def of(self, pairing_id: str) -> Iterator[PairingWatcher]:
        """Those that wait for this pairing."""
        return iter(tuple(self._watchers.get(pairing_id, ())))

    def __iter__(self) -> Iterator[PairingWatcher]:
        return iter([watcher for watchers in self._watchers.values() for watcher in watchers])
