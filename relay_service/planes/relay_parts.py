"""What the servicers need of the running relay, without knowing its other parts."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import grpc.aio

from relay_service.core.projection import Projection
from relay_service.store.base import RoutingStore
from relay_service.waiting_room import WaitingClaimant


class RelayParts(Protocol):
    """Implemented where the parts are wired together."""

    @property
    def store(self) -> RoutingStore:
        """Jobs, leases and inboxes."""

    def projection(self) -> Projection:
        """The operator's decisions as they stand now."""

    async def serve_daemon(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Serves one stream of a device to its end."""

    async def serve_site(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Serves one stream of a site to its end."""

    async def claim(self, claimant: WaitingClaimant, seconds: float) -> None:
        """Claims for a waiting call until it got something or the time is up."""

    async def wait_for_notice(
        self, site_id: str, seconds: float, unless: Callable[[], Awaitable[bool]]
    ) -> None:
        """Returns when the site's inbox gets a row, when `unless` says so, or after that time."""
