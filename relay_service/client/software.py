"""What this client calls itself, and what it makes of the relay's word on clocks and versions."""

import logging
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from relay_service.client.wire import milliseconds_of
from sealwork.session.v1 import session_pb2

CLIENT_NAME: Final = "sealwork-python"
PROTOCOL_VERSION: Final = 1

logger = logging.getLogger("sealwork.client")

_SKEW_MS: Final = 30_000


def client_version() -> str:
    """Return the version of the installed distribution; `0` from a bare checkout."""
    try:
        return version("sealwork")
    except PackageNotFoundError:
        return "0"


def heed_welcome(welcome: session_pb2.Welcome, now_ms: int) -> None:
    """Tell the owner when this machine's clock is far off, and when another version is offered.

    Nothing is decided by either: leases are counted by spans, and no version is moved to by itself.
    """
    skew_ms = now_ms - milliseconds_of(welcome.server_time)
    if welcome.HasField("server_time") and abs(skew_ms) > _SKEW_MS:
        logger.warning("this machine's clock is %.0f s off the relay's; set it", skew_ms / 1000)
    if welcome.offered_version and welcome.offered_version != client_version():
        logger.info("the relay's operator offers version %s", welcome.offered_version)
