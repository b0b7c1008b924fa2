"""Reading a site's inbox by unary calls: all of a site without streams, and what a stream has missed."""

import logging
from collections.abc import Callable
from random import Random
from typing import Final

from google.protobuf.duration_pb2 import Duration

from relay_service.client.calls import CALL_SECONDS, LIST_NOTICES, Calls
from relay_service.client.errors import RelayError
from sealwork.relay.v1 import site_plane_pb2
from service_common.clocks import Clock
from service_common.session_client import FINAL_REASONS

logger = logging.getLogger("sealwork.client")

_PAGE: Final = 200
_WAIT_SECONDS: Final = 10
_AGAIN_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 5.0


class InboxReader:
    """Hands every unsettled row to a callback. Reading settles nothing."""

    def __init__(
        self,
        calls: Calls,
        handle: Callable[[site_plane_pb2.SiteNotice], None],
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        """Read by these calls."""
        self._calls = calls
        self._handle = handle
        self._clock = clock
        self._random = random

    async def read_all(self) -> None:
        """Read what is there now, to the last page.

        Raises:
            RelayError: The relay does not answer.
        """
        token = ""
        while True:
            page = await self._page(token, wait_seconds=0)
            if len(page.notices) < _PAGE:
                return
            token = page.next_page_token

    async def follow(self, wanted: Callable[[], bool] = lambda: True) -> None:
        """Read for as long as it is wanted, each call waiting for something new.

        What could not be handled at first, such as a payload that did not arrive, is met again when the inbox
        is read from its start, every half minute.

        Raises:
            RelayError: A refusal that another try cannot change.
        """
        token = ""
        started = self._clock.monotonic()
        while wanted():
            try:
                page = await self._page(token, wait_seconds=_WAIT_SECONDS)
            except RelayError as error:
                if error.reason in FINAL_REASONS:
                    raise
                logger.warning("the inbox could not be read: %s", error)
                token = ""
                await self._clock.sleep(self._random.uniform(0, _RETRY_SECONDS))
                continue
            token = page.next_page_token
            if self._clock.monotonic() - started > _AGAIN_SECONDS:
                token, started = "", self._clock.monotonic()

    async def _page(self, token: str, *, wait_seconds: int) -> site_plane_pb2.ListNoticesResponse:
        request = site_plane_pb2.ListNoticesRequest(
            page_size=_PAGE, page_token=token, wait=Duration(seconds=wait_seconds)
        )
        # The deadline of the call leaves the relay its wait and the network its time.
        page = await self._calls.call(LIST_NOTICES, request, timeout=CALL_SECONDS + wait_seconds)
        for notice in page.notices:
            self._handle(notice)
        return page
