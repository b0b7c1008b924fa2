"""The running relay: store, streams and dispatch wired together, without a port."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio

from relay_service.core.projection import Projection
from relay_service.dispatch import Dispatch
from relay_service.inbox_delivery import InboxDelivery
from relay_service.key_directory import ProjectionKeys
from relay_service.planes.daemon_calls import DaemonCalls
from relay_service.planes.site_calls import SiteCalls
from relay_service.policy import Policy
from relay_service.projection import ProjectionSource
from relay_service.projection_effects import ProjectionEffects
from relay_service.relay_metrics import RelayMetrics
from relay_service.safety_rounds import SafetyRounds
from relay_service.sessions.daemon_session import DaemonServices, DaemonSession
from relay_service.sessions.site_session import SiteServices, SiteSession
from relay_service.store.base import RoutingStore
from relay_service.streams import DaemonStreams, SiteStreams, StreamSettings
from relay_service.sweeper import Sweeper
from relay_service.waiting_room import WaitingClaimant
from sealwork.session.v1 import session_pb2
from service_common.background import Background
from service_common.sessions.registry import SessionRegistry

Context = grpc.aio.ServicerContext[Any, Any]


class Relay:
    """Everything between the servicers and the store.

    Args:
        sessions_per_site: streams that one site may have.
        policy: the operator's, None when consent alone decides.

    Attributes:
        leaving: set when a drain has begun.
    """

    def __init__(
        self,
        store: RoutingStore,
        source: ProjectionSource,
        keys: ProjectionKeys,
        settings: StreamSettings,
        metrics: RelayMetrics,
        *,
        sessions_per_site: int = 16,
        policy: Policy | None = None,
    ) -> None:
        self.store = store
        self._clock = settings.session.clock
        self.daemons: SessionRegistry[DaemonSession] = SessionRegistry(self._clock, most=1)
        self.sites: SessionRegistry[SiteSession] = SessionRegistry(self._clock, most=sessions_per_site)
        self.inbox = InboxDelivery(store, self.sites, self._clock)
        self.dispatch = Dispatch(
            store,
            self.projection,
            self.daemons,
            self.inbox,
            lease_ms=settings.session.times.lease_ms,
            random=settings.session.random,
            on_churn=metrics.churn,
            policy=policy,
        )
        self.daemon_calls = DaemonCalls(
            store,
            self.projection,
            lease_ms=settings.session.times.lease_ms,
            on_freed=self.dispatch.freed,
        )
        self.site_calls = SiteCalls(store, self.projection, self.inbox.settled, self.inbox.sealed, policy)
        self.leaving = asyncio.Event()
        self._source = source
        self._background = Background()
        daemon_services = DaemonServices(store, self.daemon_calls, self.dispatch, self._background)
        self._daemon_streams = DaemonStreams(settings, self.daemons, keys, daemon_services, self.projection)
        site_services = SiteServices(self.site_calls, self.dispatch.deliver)
        self._site_streams = SiteStreams(settings, self.sites, keys, site_services, self.inbox)
        self._effects = ProjectionEffects(
            store, self.daemons, self.sites, self.dispatch, self._background, self._clock
        )
        self._stop_listening: Callable[[], None] = source.listen(self._effects.apply)
        self._sweeper = Sweeper(store, self.inbox, self.dispatch, self._clock)

    def projection(self) -> Projection:
        """The operator's decisions as they stand now."""
        return self._source.current

    def go_round(self, seconds: float, at_each_round: Callable[[], None]) -> None:
        """Begins to look at every stream once in that time; for relays that tell each other what happens."""
        rounds = SafetyRounds(self.dispatch, self.daemons, self._clock, seconds)
        self._background.run(rounds.run(at_each_round))

    def start(self) -> None:
        """Starts what runs without being called: timers and the watch on the projection."""
        self._background.run(self._sweeper.run())
        self._effects.start(self.projection())

    async def drain(self) -> None:
        """Asks every stream to move; returns when all have ended."""
        self.leaving.set()
        streams = [*self.daemons, *self.sites]
        for stream in streams:
            stream.ask_to_move(session_pb2.DRAIN_REASON_SERVER_SHUTDOWN)
        for stream in streams:
            await stream.wait_ended()

    async def close(self) -> None:
        """Ends everything that was started here; the store is its owner's to close."""
        stop_listening, self._stop_listening = self._stop_listening, lambda: None
        stop_listening()
        self._effects.close()
        await self.dispatch.close()
        await self._background.cancel()

    # -- what the servicers need --------------------------------------------------------

    async def serve_daemon(self, context: Context) -> None:
        """Serves one stream of a device to its end."""
        await self._daemon_streams.serve(context)

    async def serve_site(self, context: Context) -> None:
        """Serves one stream of a site to its end."""
        await self._site_streams.serve(context)

    async def claim(self, claimant: WaitingClaimant, seconds: float) -> None:
        """Claims for a waiting call until it got something or the time is up."""
        try:
            if await self.dispatch.claim_now(claimant) or seconds <= 0:
                return
            # Once more, now that it waits: work that came during the claim found nobody waiting.
            self.dispatch.seek(claimant)
            await claimant.wait(self._clock, seconds)
            # What it has won by then is its own if the policy agrees.
            await self.dispatch.settled(claimant)
        finally:
            self.dispatch.forget(claimant)

    async def wait_for_notice(
        self, site_id: str, seconds: float, unless: Callable[[], Awaitable[bool]]
    ) -> None:
        """Returns when the site's inbox gets a row, or after that time; see `InboxDelivery.wait`."""
        await self.inbox.wait(site_id, seconds, unless)
