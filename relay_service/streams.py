"""From an opened stream to a served session and its clean-up."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import grpc.aio

from relay_service.core.projection import ProjectedDevice, Projection
from relay_service.core.versions import is_below
from relay_service.inbox_delivery import InboxDelivery
from relay_service.key_directory import ProjectionKeys
from relay_service.planes.refusals import daemon_below_floor, device_revoked
from relay_service.sessions import daemon_session, site_session
from relay_service.sessions.daemon_session import DaemonServices, DaemonSession
from relay_service.sessions.framing import DaemonFraming, SiteFraming
from relay_service.sessions.site_session import SiteServices, SiteSession
from sealwork.relay.v1 import daemon_plane_pb2, site_plane_pb2
from sealwork.session.v1 import session_pb2
from service_common.sessions.endings import EndReason
from service_common.sessions.handshake import Greeted, Handshake
from service_common.sessions.limits import agreed_capabilities, welcome
from service_common.sessions.registry import SessionRegistry
from service_common.sessions.session import ServerSession, SessionSetting

_DAEMON_METHOD = "/sealwork.relay.v1.DaemonPlaneService/Session"
_SITE_METHOD = "/sealwork.relay.v1.SitePlaneService/Session"
_DAEMON_CAPABILITIES = frozenset({session_pb2.CAPABILITY_INLINE_PAYLOAD})
_SITE_CAPABILITIES = frozenset({session_pb2.CAPABILITY_INLINE_RESULT})

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True)
class StreamSettings:
    """What both kinds of streams need.

    Attributes:
        daemon_floor: least version of a daemon, empty for none.
        offered_version: version that daemons are told to move to, empty for none.
        refuse_if_draining: raises when no new stream is welcome.
        on_open: told the plane of an accepted stream.
        on_end: told how an accepted stream ended, by plane.
    """

    session: SessionSetting
    instance: str
    refuse_if_draining: Callable[[], None]
    on_open: Callable[[str], None]
    on_end: Callable[[str, EndReason], None]
    daemon_floor: str = ""
    offered_version: str = ""


class DaemonStreams:
    """Serves streams of devices; a newer one of the same device wins."""

    def __init__(
        self,
        settings: StreamSettings,
        registry: SessionRegistry[DaemonSession],
        keys: ProjectionKeys,
        services: DaemonServices,
        projection: Callable[[], Projection],
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._services = services
        self._projection = projection
        self._framing = DaemonFraming()
        self._handshake: Handshake[daemon_plane_pb2.DaemonHello] = Handshake(
            _DAEMON_METHOD,
            daemon_plane_pb2.DaemonHello,
            lambda hello: hello.runner_id,
            keys,
            clock=settings.session.clock,
            hello_ms=settings.session.times.hello_ms,
            frame_bytes=settings.session.times.frame_bytes,
            random_bytes=os.urandom,
        )

    async def serve(self, context: Context) -> None:
        """Serves one stream to its end."""
        self._settings.refuse_if_draining()
        greeted = await self._handshake.greet(
            context, lambda challenge: self._framing.frame(1, 0, [self._framing.challenge(challenge)])
        )
        # Again: a drain that began meanwhile has asked all streams to move and missed this one.
        self._settings.refuse_if_draining()
        session = self._session(context, greeted)
        # Admitted before the first await: two hellos of one device at once must see each other.
        self._registry.admit(greeted.caller, greeted.hello.process_id, session)
        self._settings.on_open("daemon")
        try:
            await self._serve(session, greeted)
            await session.finish()
        finally:
            session.closed()

    async def _serve(self, session: DaemonSession, greeted: Greeted[daemon_plane_pb2.DaemonHello]) -> None:
        async def open_() -> None:
            # The store's epoch, which streams of this device at other relays are compared by.
            session.epoch = await self._services.store.open_session(greeted.caller, session.session_id)
            session.fence.take(session.epoch)
            await session.arrive(greeted.hello, self._welcome(session, greeted))
            await session.receive_rest(greeted.seq, greeted.items)

        try:
            await session.serve(open_())
        finally:
            # Before the status is sent: a device that does not read would keep its grants.
            self._registry.remove(greeted.caller, session)
            session.depart()
            self._settings.on_end("daemon", session.end_reason)

    def _session(self, context: Context, greeted: Greeted[daemon_plane_pb2.DaemonHello]) -> DaemonSession:
        hello = greeted.hello
        daemon_session.check_hello(hello, self._settings.session.times.leases_per_frame)
        floor = self._settings.daemon_floor
        if floor and is_below(hello.client_version, floor):
            raise daemon_below_floor(floor)
        session = DaemonSession(
            context,
            self._device(greeted.caller),
            hello,
            agreed_capabilities(hello.capabilities, _DAEMON_CAPABILITIES),
            str(uuid4()),
            self._services,
            self._settings.session,
        )
        session.follow_greeting(greeted.seq)
        return session

    def _device(self, runner_id: str) -> ProjectedDevice:
        device = self._projection().device(runner_id)
        if device is None or device.revoked:
            raise device_revoked()
        return device

    def _welcome(
        self, session: DaemonSession, greeted: Greeted[daemon_plane_pb2.DaemonHello]
    ) -> session_pb2.Welcome:
        agreed = agreed_capabilities(greeted.hello.capabilities, _DAEMON_CAPABILITIES)
        offered = self._settings.offered_version
        newer = offered if offered and offered != greeted.hello.client_version else None
        return _welcome(self._settings, session, agreed, newer)


class SiteStreams:
    """Serves streams of sites; a site may have several."""

    def __init__(
        self,
        settings: StreamSettings,
        registry: SessionRegistry[SiteSession],
        keys: ProjectionKeys,
        services: SiteServices,
        inbox: InboxDelivery,
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._services = services
        self._inbox = inbox
        self._framing = SiteFraming()
        self._handshake: Handshake[site_plane_pb2.SiteHello] = Handshake(
            _SITE_METHOD,
            site_plane_pb2.SiteHello,
            lambda hello: hello.site_id,
            keys,
            clock=settings.session.clock,
            hello_ms=settings.session.times.hello_ms,
            frame_bytes=settings.session.times.frame_bytes,
            random_bytes=os.urandom,
        )

    async def serve(self, context: Context) -> None:
        """Serves one stream to its end."""
        self._settings.refuse_if_draining()
        greeted = await self._handshake.greet(
            context, lambda challenge: self._framing.frame(1, 0, [self._framing.challenge(challenge)])
        )
        # Again: a drain that began meanwhile has asked all streams to move and missed this one.
        self._settings.refuse_if_draining()
        session = self._session(context, greeted)
        self._registry.admit(greeted.caller, greeted.hello.process_id, session)
        self._settings.on_open("site")
        try:
            await self._serve(session, greeted)
            await session.finish()
        finally:
            session.closed()

    async def _serve(self, session: SiteSession, greeted: Greeted[site_plane_pb2.SiteHello]) -> None:
        async def open_() -> None:
            agreed = agreed_capabilities(greeted.hello.capabilities, _SITE_CAPABILITIES)
            session.arrive(_welcome(self._settings, session, agreed))
            await session.receive_rest(greeted.seq, greeted.items)

        try:
            await session.serve(open_())
        finally:
            self._registry.remove(greeted.caller, session)
            self._inbox.lost(session)
            # What it was sent and did not settle may go to another stream of the site.
            self._services.wants_notices(greeted.caller)
            self._settings.on_end("site", session.end_reason)

    def _session(self, context: Context, greeted: Greeted[site_plane_pb2.SiteHello]) -> SiteSession:
        site_session.check_hello(greeted.hello)
        session = SiteSession(
            context,
            greeted.caller,
            greeted.hello,
            agreed_capabilities(greeted.hello.capabilities, _SITE_CAPABILITIES),
            greeted.key,
            str(uuid4()),
            self._services,
            self._settings.session,
        )
        session.follow_greeting(greeted.seq)
        return session


def _welcome(
    settings: StreamSettings,
    session: ServerSession[Any, Any],
    capabilities: frozenset[session_pb2.Capability.ValueType],
    offered_version: str | None = None,
) -> session_pb2.Welcome:
    return welcome(
        session_id=session.session_id,
        epoch=session.epoch,
        times=settings.session.times,
        capabilities=capabilities,
        now_ms=settings.session.clock.now_ms(),
        instance=settings.instance,
        offered_version=offered_version,
    )
