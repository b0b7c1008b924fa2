"""The server's time, asked for now and then and counted on from there."""

import time
from collections.abc import Callable
from math import ceil

from relay_service.store.valkey_sites import Functions

# So long this process's steady clock stands in for the server's. Short, since it is also how long a server
# that has gone away is not missed by who asks for nothing but the time.
_COUNTED_SECONDS = 0.25


class ServerTime:
    """What the server's clock shows, for checks and for spans that are told to clients.

    Nothing is decided by it that an operation on the server decides. It is never behind the server's clock,
    but ahead by as long as the question was under way: who is told of a lease is told of too short a one
    rather than too long.
    """

    def __init__(
        self,
        functions: Functions,
        clock_setting: Callable[[], str],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Makes it.

        Args:
            clock_setting: as the store's; a clock that a test has set is asked each time.
            monotonic: seconds of a steady clock.
        """
        self._functions = functions
        self._clock_setting = clock_setting
        self._monotonic = monotonic
        self._asked_at = float("-inf")
        self._asked_epoch = -1
        self._instant_ms = 0

    async def now_ms(self) -> int:
        """Epoch milliseconds.

        Raises:
            StoreUnavailable: the server had to be asked, and cannot be.
        """
        setting, asked_at = self._clock_setting(), self._monotonic()
        elapsed = asked_at - self._asked_at
        # Another connection may be one to another server.
        if not setting and elapsed < _COUNTED_SECONDS and self._asked_epoch == self._functions.epoch:
            return self._instant_ms + ceil(elapsed * 1000)
        instant_ms: int = await self._functions.call("now", (), setting)
        if not setting:
            self._asked_at, self._asked_epoch = asked_at, self._functions.epoch
            self._instant_ms = instant_ms
        return instant_ms
