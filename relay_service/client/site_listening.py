"""How a site hears from its relay: by a stream, and by reading its inbox while it has none."""

import logging
from collections.abc import Callable
from typing import Final

import grpc

from relay_service.client.dual_calls import DualCalls
from relay_service.client.errors import RelayError
from relay_service.client.site_inbox import InboxReader
from service_common.clocks import Clock
from service_common.deadlines import within
from service_common.errors import ServiceError
from service_common.session_client import SessionClient

logger = logging.getLogger("sealwork.client")

# A stream that is lost is usually back before that.
_STREAMLESS_SECONDS: Final = 5.0


class Listening:
    """Keeps a site informed, whichever way is open."""

    def __init__(
        self,
        session: SessionClient,
        inbox: InboxReader,
        calls: DualCalls,
        clock: Clock,
        *,
        streams: bool,
        on_refused: Callable[[RelayError], None],
    ) -> None:
        """Prepare.

        Args:
            session: The stream.
            inbox: The other way.
            calls: Runs things in the background.
            clock: Times them.
            streams: Whether to have a stream at all.
            on_refused: The relay will not talk to this site any more.
        """
        self._session = session
        self._inbox = inbox
        self._calls = calls
        self._clock = clock
        self._streams = streams
        self._on_refused = on_refused

    async def start(self, timeout: float | None) -> None:
        """Begin to listen; returns once the relay has been heard.

        Args:
            timeout: Seconds to wait for a stream; None waits for ever.

        Raises:
            RelayError: It refuses this site, or cannot be reached either way.
        """
        self._calls.spawn(self._do_without_stream())
        if not self._streams:
            return
        self._session.start(at_once=True)
        if timeout is None:
            await self._session.opened()
            return
        try:
            await within(self._clock, timeout, self._session.opened())
        except TimeoutError:
            await self._check_without_stream(timeout)

    async def _check_without_stream(self, waited: float) -> None:
        """Something on the way may let calls through and no streams: that is slower, and works."""
        try:
            await self._inbox.read_all()
        except RelayError:
            text = f"no session within {waited:g} seconds"
            failure = self._session.failure or ServiceError(grpc.StatusCode.UNAVAILABLE, "", text)
            raise RelayError(failure) from None
        logger.warning("no stream can be had (%s); going on without one", self._session.failure)

    async def _do_without_stream(self) -> None:
        try:
            while True:
                if self._streams:
                    await self._clock.sleep(_STREAMLESS_SECONDS)
                await self._inbox.follow(self._has_no_stream)
        except RelayError as error:
            self._on_refused(error)

    def _has_no_stream(self) -> bool:
        return self._session.stream is None
