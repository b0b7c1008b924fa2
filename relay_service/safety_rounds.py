"""A slow round of everybody, so that a message lost between relays without a trace costs time alone."""

from collections import deque
from collections.abc import Callable
from typing import Final

from relay_service.dispatch import Dispatch
from relay_service.sessions.daemon_session import DaemonSession
from service_common.clocks import Clock
from service_common.sessions.registry import SessionRegistry

_TURN_SECONDS: Final = 1.0


class SafetyRounds:
    """Looks at every stream once in a while as if news of it had been missed.

    A connection that is lost is noticed at once, and everything is made up for then. This is for what nobody
    notices. Each turn takes its share of the streams: all at once would hold up the news that did arrive.

    Args:
        seconds: one round of all devices and sites.
    """

    def __init__(
        self, dispatch: Dispatch, daemons: SessionRegistry[DaemonSession], clock: Clock, seconds: float
    ) -> None:
        self._dispatch = dispatch
        self._daemons = daemons
        self._clock = clock
        self._turns = max(1, round(seconds / _TURN_SECONDS))
        self._ahead: deque[DaemonSession] = deque()
        self._share = 0

    async def run(self, at_each_round: Callable[[], None]) -> None:
        """Goes round until cancelled.

        Args:
            at_each_round: looks at what belongs to no stream.
        """
        while True:
            self._ahead.extend(self._daemons)
            self._share = -(-len(self._ahead) // self._turns)
            for _ in range(self._turns):
                await self._clock.sleep(_TURN_SECONDS)
                self._take_turn()
            self._dispatch.look_at_sites()
            at_each_round()

    def _take_turn(self) -> None:
        for _ in range(min(self._share, len(self._ahead))):
            session = self._ahead.popleft()
            if not session.ended:
                self._dispatch.look_at(session)
