"""Jobs of sites that are not known here: the directory is asked before they are refused for ever."""

import logging
from collections.abc import Callable
from typing import Final

from relay_service.client.calls import GET_SITES, Calls
from relay_service.client.daemon_jobs import HeldJob
from relay_service.client.dual_calls import DualCalls
from relay_service.client.errors import RelayError
from sealwork.relay.v1 import daemon_plane_pb2, site_directory_pb2
from service_common.clocks import Clock

logger = logging.getLogger("sealwork.client")

_DIRECTORY_SECONDS: Final = 30.0


class Strangers:
    """A site may have a new key that this device has missed the news of, so it asks, at most now and then."""

    def __init__(
        self,
        unary: Calls,
        calls: DualCalls,
        clock: Clock,
        *,
        on_directory: Callable[[site_directory_pb2.SiteDirectory], None],
        on_known: Callable[[HeldJob], None],
    ) -> None:
        """Prepare.

        Args:
            unary: Reads the directory.
            calls: Runs that in the background.
            clock: Times the questions.
            on_directory: Takes over the directory.
            on_known: Decides about a job once as much is known as can be.
        """
        self._unary = unary
        self._calls = calls
        self._clock = clock
        self._on_directory = on_directory
        self._on_known = on_known
        self._waiting: list[HeldJob] = []
        self._asked_at = float("-inf")

    def ask_about(self, job: HeldJob) -> None:
        """Decide about this job later."""
        self._waiting.append(job)
        if len(self._waiting) == 1:
            self._calls.spawn(self._ask())

    async def _ask(self) -> None:
        try:
            now = self._clock.monotonic()
            if now - self._asked_at >= _DIRECTORY_SECONDS:
                self._asked_at = now
                answer = await self._unary.call(GET_SITES, daemon_plane_pb2.GetSitesRequest())
                self._on_directory(answer.directory)
        except RelayError as error:
            logger.warning("the directory of sites could not be read: %s", error)
        finally:
            waiting, self._waiting = self._waiting, []
            for job in waiting:
                self._on_known(job)
