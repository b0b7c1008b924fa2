"""A site's half of its stream: the hello, the credit, and what the relay says."""

import logging
from collections.abc import Callable
from typing import Any, Final

from relay_service.client.errors import RelayError
from relay_service.client.relay_time import RelayTime
from relay_service.client.software import CLIENT_NAME, PROTOCOL_VERSION, UpdateOffer, client_version
from sealwork.relay.v1 import site_plane_pb2
from sealwork.session.v1 import session_pb2
from service_common.clocks import Clock
from service_common.errors import ServiceError
from service_common.session_client import ClientStream, Hello, SessionPlane, StreamEnd

logger = logging.getLogger("sealwork.client")

SITE_SESSION: Final = SessionPlane(
    method="/sealwork.relay.v1.SitePlaneService/Session",
    item=site_plane_pb2.SiteItem,
    call=site_plane_pb2.SiteCall,
    read_frame=site_plane_pb2.SitePlaneServiceSessionResponse.FromString,
    error_of=RelayError,
)

_WINDOW: Final = 256
_LEAST_WINDOW: Final = 16
_SLOW_CONSUMER: Final = "SLOW_CONSUMER"


class SiteSession:
    """Tells the site what its stream brings, and keeps the relay in credit."""

    def __init__(
        self,
        site_id: str,
        process_id: str,
        on_notice: Callable[[site_plane_pb2.SiteNotice], None],
        on_gap: Callable[[], None],
        on_refused: Callable[[RelayError], None],
        clock: Clock,
        *,
        on_hello: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare.

        Args:
            site_id: The site.
            process_id: Minted at process start.
            on_notice: Handles a notice.
            on_gap: Something may have been missed: a stream was lost before, or notices were dropped.
            on_refused: There will be no stream any more.
            clock: Compared with the relay's.
            on_hello: Told before every hello.
        """
        self._on_hello = on_hello
        self._time = RelayTime(clock)
        self._update = UpdateOffer()
        self._site_id = site_id
        self._process_id = process_id
        self._on_notice = on_notice
        self._on_gap = on_gap
        self._on_refused = on_refused
        self._window = _WINDOW
        self._stream: ClientStream | None = None
        self._received = 0
        self._offered = 0
        self._had_gap = False

    def hello(self) -> Hello:
        self._on_hello()
        hello = site_plane_pb2.SiteHello(
            site_id=self._site_id,
            process_id=self._process_id,
            client_name=CLIENT_NAME,
            client_version=client_version(),
            protocol_version=PROTOCOL_VERSION,
            capabilities=[session_pb2.CAPABILITY_INLINE_RESULT],
            credit=session_pb2.Credit(limit=self._window),
        )
        return Hello(hello.SerializeToString(), self._window)

    def opened(self, stream: ClientStream) -> None:
        self._time.heed(stream.welcome)
        self._update.heed(stream.welcome)
        self._stream = stream
        self._received = 0
        self._offered = self._window
        if self._had_gap:
            self._had_gap = False
            self._on_gap()

    def received(self, stream: ClientStream, arm: str, item: Any) -> None:
        if arm == "notice":
            if stream is self._stream:
                self._received += 1
            self._on_notice(item.notice)
        elif arm == "resync_required":
            self._on_gap()

    def frame_handled(self, stream: ClientStream) -> None:
        # Topped up when half of it is used: an item for every notice would double the traffic.
        if stream is self._stream and self._offered - self._received <= self._window // 2:
            self._offered = self._received + self._window
            stream.offer_credit(self._offered)

    def lost(self, end: StreamEnd) -> None:
        self._stream = None
        self._had_gap = True
        if end.error is not None and end.error.reason == _SLOW_CONSUMER:
            self._window = max(_LEAST_WINDOW, self._window // 2)

    def refused(self, error: ServiceError) -> None:
        self._on_refused(RelayError(error))
