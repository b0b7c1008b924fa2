"""What this client calls itself, and what it makes of the relay's word on versions."""

import logging
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from sealwork.session.v1 import session_pb2

CLIENT_NAME: Final = "sealwork-python"
PROTOCOL_VERSION: Final = 1

logger = logging.getLogger("sealwork.client")


def client_version() -> str:
    """Return the version of the installed distribution; `0` from a bare checkout."""
    try:
        return version("sealwork")
    except PackageNotFoundError:
        return "0"


class UpdateOffer:
    """Another version that the relay's operator offers. No version is moved to by itself."""

    def __init__(self, on_change: Callable[[str], None] | None = None) -> None:
        """Start without an offer.

        Args:
            on_change: Told of every new offer; of an empty text when there is none any more.
        """
        self._on_change = on_change
        self._offered: str | None = None

    def heed(self, welcome: session_pb2.Welcome) -> None:
        """Tell the owner, once for each version that is offered."""
        offered = welcome.offered_version
        if offered == client_version():
            offered = ""
        if offered == self._offered:
            return
        self._offered = offered
        if offered:
            logger.warning("the relay's operator offers version %s; this is %s", offered, client_version())
        if self._on_change is not None:
            self._on_change(offered)
