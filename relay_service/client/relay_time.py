"""The time as the relay and the control plane have it, as far as this device knows."""

import logging
from typing import Final

from relay_service.client.wire import milliseconds_of
from sealwork.session.v1 import session_pb2
from service_common.clocks import Clock

logger = logging.getLogger("sealwork.client")

_SKEW_MS: Final = 30_000


class RelayTime:
    """This machine's clock, corrected by what the relay said last.

    A grant is good for two minutes by the clock of whoever signed it; a machine whose clock is wrong must
    not refuse work for that. What the relay says about time can make no grant good twice.
    """

    def __init__(self, clock: Clock) -> None:
        """Go by this clock until the relay has been heard."""
        self._clock = clock
        self._ahead_ms = 0
        self._is_off = False

    def now_ms(self) -> int:
        """Return the relay's time, epoch milliseconds."""
        return self._clock.now_ms() - self._ahead_ms

    def heed(self, welcome: session_pb2.Welcome) -> None:
        """Take the relay's time, and tell the owner when this clock comes to be far off, or no longer is."""
        if not welcome.HasField("server_time"):
            return
        self._ahead_ms = self._clock.now_ms() - milliseconds_of(welcome.server_time)
        is_off = abs(self._ahead_ms) > _SKEW_MS
        if is_off and not self._is_off:
            logger.warning("this machine's clock is %.0f s off the relay's; set it", self._ahead_ms / 1000)
        elif self._is_off and not is_off:
            logger.info("this machine's clock agrees with the relay's again")
        self._is_off = is_off
