"""Wires store, projection, planes and streams behind a port. Nothing else knows all parts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Self
from uuid import uuid4

import grpc.aio

from relay_service.core.identity import PublicIdentity
from relay_service.key_directory import ProjectionKeys
from relay_service.pairing import PairingDesk, PairingSettings
from relay_service.planes import admin_plane, control_plane, daemon_plane, site_plane
from relay_service.planes.admin_plane import AdminPlane
from relay_service.planes.control_plane import ControlPlane
from relay_service.planes.daemon_plane import DaemonPlane
from relay_service.planes.pairing_calls import PairingCalls
from relay_service.planes.site_plane import SitePlane
from relay_service.policy import Policy, PolicyService
from relay_service.projection import ProjectionSource
from relay_service.projection_exchange import ProjectionExchange
from relay_service.projection_keeper import ProjectionKeeper
from relay_service.relay import Relay
from relay_service.relay_metrics import RelayMetrics
from relay_service.store.base import RoutingStore
from relay_service.streams import StreamSettings
from sealwork.relay.v1 import (
    admin_pb2_grpc,
    control_plane_pb2_grpc,
    daemon_plane_pb2_grpc,
    site_plane_pb2_grpc,
)
from service_common.background import Background
from service_common.call_interceptor import CallInterceptor
from service_common.call_metrics import CallMetrics
from service_common.clocks import Clock, SystemClock
from service_common.drain import Drain
from service_common.health import ServingState
from service_common.listeners import Listener, bind
from service_common.loop_lag import LoopLagMonitor
from service_common.method_table import (
    CHANNELZ_METHODS,
    HEALTH_METHODS,
    REFLECTION_METHODS,
    MethodTable,
    ServicePolicy,
)
from service_common.metrics import Metrics
from service_common.readiness import Readiness
from service_common.request_verifier import RequestVerifier
from service_common.server import add_health, add_reflection, build_admin_server, build_server
from service_common.sessions.limits import SessionTimes
from service_common.sessions.session import SessionSetting

DOMAIN = "relay.sealwork.dev"
SERVICES = (site_plane.SERVICE, daemon_plane.SERVICE, control_plane.SERVICE, admin_plane.SERVICE)
PAIRING_METHODS = frozenset(
    f"/{daemon_plane.SERVICE}/{name}" for name in ("StartPairing", "WatchPairing", "PollPairing")
)
ADMIN_METHODS = frozenset(
    f"/{admin_plane.SERVICE}/{name}"
    for name in ("GetStats", "ListJobs", "ListDaemons", "ListSites", "ListChurnReports", "Watch")
)
SESSION_METHODS = frozenset(f"/{service}/Session" for service in (site_plane.SERVICE, daemon_plane.SERVICE))


@dataclass(frozen=True)
class ServerOptions:
    """How a relay serves.

    Attributes:
        listeners: where; at least one.
        operators: public identities that may call the operator's planes, by caller name.
        admin_listener: where operators look on without a signature; whoever reaches it may look.
        so_reuseport: let several processes share a port.
        pairing: how devices pair by code.
        policy: the operator's, asked about needs and grants; None when consent alone decides. It is
            its maker's to close.
    """

    listeners: Sequence[Listener]
    times: SessionTimes = field(default_factory=SessionTimes)
    instance: str = field(default_factory=lambda: f"relay-{uuid4().hex[:8]}")
    operators: dict[str, PublicIdentity] = field(default_factory=dict)
    daemon_floor: str = ""
    offered_version: str = ""
    sessions_per_site: int = 16
    grace_ms: int = 30_000
    admin_listener: Listener | None = None
    so_reuseport: bool = False
    pairing: PairingSettings = field(default_factory=PairingSettings)
    policy: PolicyService | None = None


class RelayServer:
    """One relay behind its listeners.

    Use as an async context manager, or call `start` and `stop`.

    Args:
        keeper: carries out the operator's decisions; one that keeps them in memory when absent.
    """

    def __init__(
        self,
        store: RoutingStore,
        source: ProjectionSource,
        options: ServerOptions,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        metrics: Metrics | None = None,
        keeper: ProjectionKeeper | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.metrics = metrics or Metrics()
        self.state = ServingState(SERVICES)
        self.drain = Drain(self.clock, self.state, grace_ms=options.grace_ms)
        self.ports: list[int] = []
        self._options = options
        self._store = store
        keys = ProjectionKeys(
            lambda: source.current,
            self.clock,
            {name: identity.identity for name, identity in options.operators.items()},
        )
        relay_metrics = RelayMetrics(self.metrics)
        settings = StreamSettings(
            session=SessionSetting(
                times=options.times,
                clock=self.clock,
                random=random or Random(),  # noqa: S311 - spreads load, keeps no secret
            ),
            instance=options.instance,
            refuse_if_draining=self.drain.refuse_if_draining,
            on_open=relay_metrics.stream_opened,
            on_end=relay_metrics.stream_ended,
            daemon_floor=options.daemon_floor,
            offered_version=options.offered_version,
        )
        self.relay = Relay(
            store,
            source,
            keys,
            settings,
            relay_metrics,
            sessions_per_site=options.sessions_per_site,
            policy=None if options.policy is None else Policy(options.policy, self.clock, self.metrics),
        )
        self.drain.register(self.relay.drain)
        self.pairing = PairingDesk(store, source, options.pairing, self.clock, metrics=self.metrics)
        self.drain.register(self.pairing.leave)
        self.keeper = keeper or ProjectionKeeper(source, ProjectionExchange(store, source, Background()))
        self.pairing.register = self.keeper.register
        self._control = ControlPlane(source, self.keeper, self.pairing, self.clock, self.relay.leaving)
        verifier = RequestVerifier(keys, store, self.clock)
        self._admin = AdminPlane(self.relay, source, self.clock, options.instance)
        self._servers = [self._build(verifier)]
        if options.admin_listener is not None:
            self._servers.append(self._build_admin())
        self._background = Background()
        self._lag = LoopLagMonitor(self.clock, self.state)

    @property
    def address(self) -> str:
        """The first listener's address, with the port that was bound."""
        listener = self._options.listeners[0].address
        if not self.ports or not self.ports[0]:
            return listener
        return f"{listener.rpartition(':')[0]}:{self.ports[0]}"

    async def start(self) -> None:
        """Binds and serves.

        Raises:
            SettingsError: an address cannot be served.
        """
        for listener in self._options.listeners:
            self.ports.append(bind(self._servers[0], listener))
        if self._options.admin_listener is not None:
            bind(self._servers[1], self._options.admin_listener)
        for server in self._servers:
            await server.start()
        self.relay.start()
        readiness = Readiness(self.clock, self.state, dict.fromkeys(SERVICES, self._store_answers))
        await readiness.refresh()
        self._background.run(readiness.run())
        self._lag.start()

    async def run_until_drained(self) -> None:
        """Serves until a drain begins and has been carried out."""
        await self.drain.run(*self._servers)

    async def stop(self) -> None:
        """Ends at once what is still served."""
        self._lag.stop()
        await self._background.cancel()
        for server in self._servers:
            await server.stop(0)
        self.pairing.close()
        await self.keeper.settle()
        await self.relay.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _build(self, verifier: RequestVerifier) -> grpc.aio.Server:
        policy = ServicePolicy(DOMAIN, verifier)
        table = MethodTable(
            services=dict.fromkeys(SERVICES, policy),
            unauthenticated=PAIRING_METHODS | HEALTH_METHODS | REFLECTION_METHODS,
            challenged=SESSION_METHODS,
            default_domain=DOMAIN,
        )
        interceptor = CallInterceptor(table, CallMetrics(self.metrics), self.clock)
        server = build_server(interceptor, so_reuseport=self._options.so_reuseport)
        relay = self.relay
        pairing = PairingCalls(self.pairing, relay.projection, self._options.daemon_floor)
        daemon_plane_pb2_grpc.add_DaemonPlaneServiceServicer_to_server(
            DaemonPlane(relay, relay.daemon_calls, pairing), server
        )
        site_plane_pb2_grpc.add_SitePlaneServiceServicer_to_server(SitePlane(relay, relay.site_calls), server)
        control_plane_pb2_grpc.add_ControlPlaneServiceServicer_to_server(self._control, server)
        admin_pb2_grpc.add_RelayAdminServiceServicer_to_server(self._admin, server)
        add_health(server, self.state)
        add_reflection(server, SERVICES)
        return server

    def _build_admin(self) -> grpc.aio.Server:
        table = MethodTable(
            services={admin_plane.SERVICE: ServicePolicy(DOMAIN, None)},
            unauthenticated=ADMIN_METHODS | HEALTH_METHODS | REFLECTION_METHODS | CHANNELZ_METHODS,
            default_domain=DOMAIN,
        )
        # The metrics of calls are counted once a process, under the names of the main listener.
        interceptor = CallInterceptor(table, CallMetrics(Metrics()), self.clock)
        server = build_admin_server(interceptor, self.state, [admin_plane.SERVICE])
        admin_pb2_grpc.add_RelayAdminServiceServicer_to_server(self._admin, server)
        return server

    async def _store_answers(self) -> bool:
        await self._store.now()
        return True
