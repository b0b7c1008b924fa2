"""A change of the projection reaches live streams at once."""

import grpc
import structlog

from relay_service.core.model import LeaseRef, ReleaseReason
from relay_service.core.projection import ProjectedDevice, Projection
from relay_service.dispatch import Dispatch
from relay_service.planes.daemon_calls import directory_of
from relay_service.planes.refusals import device_revoked
from relay_service.sessions.daemon_session import DaemonSession
from relay_service.sessions.site_session import SiteSession
from relay_service.store.base import RoutingStore
from service_common.background import Background
from service_common.clocks import Clock, TimerHandle
from service_common.errors import ServiceError
from service_common.sessions.endings import EndReason
from service_common.sessions.registry import SessionRegistry

_log = structlog.get_logger(__name__)

_LONGEST_WAIT_MS = 3_600_000


class ProjectionEffects:
    """Ends, tells and wakes streams as the operator's decisions change."""

    def __init__(
        self,
        store: RoutingStore,
        daemons: SessionRegistry[DaemonSession],
        sites: SessionRegistry[SiteSession],
        dispatch: Dispatch,
        background: Background,
        clock: Clock,
    ) -> None:
        self._store = store
        self._daemons = daemons
        self._sites = sites
        self._dispatch = dispatch
        self._background = background
        self._clock = clock
        self._retirement: TimerHandle | None = None

    def start(self, projection: Projection) -> None:
        """Begins to watch for what time alone changes in a projection: retiring keys of sites."""
        self._await_retirement(projection)

    def close(self) -> None:
        """Ends watching."""
        if self._retirement is not None:
            self._retirement.cancel()

    def apply(self, old: Projection, new: Projection) -> None:
        """Called synchronously with each accepted change, the new one in force already."""
        cut_off = [device.runner_id for device in old.devices if _is_cut_off(device, new)]
        if cut_off:
            self._background.run(self._return_leases(cut_off))
        for session in self._daemons:
            self._apply_to_daemon(session, old, new)
        for site_session in self._sites:
            self._apply_to_site(site_session, new)
        # A consent, a roster or a resumed site may have opened a route.
        self._dispatch.reconsider()
        self._await_retirement(new)

    def _apply_to_daemon(self, session: DaemonSession, old: Projection, new: Projection) -> None:
        device = new.device(session.runner_id)
        if device is None or device.revoked:
            session.end(EndReason.REFUSED, device_revoked())
            return
        if device.identity != session.device.identity or device.owner != session.device.owner:
            session.end(EndReason.REFUSED, _key_replaced())
            return
        directory = directory_of(new, device.owner)
        if directory != directory_of(old, device.owner):
            session.push_sites(directory)

    def _apply_to_site(self, session: SiteSession, new: Projection) -> None:
        site = new.site(session.site_id)
        accepted = site.acceptable_identities(self._clock.now_ms()) if site is not None else ()
        if session.key not in {identity.identity for identity in accepted}:
            session.end(EndReason.REFUSED, _key_replaced())

    def _await_retirement(self, projection: Projection) -> None:
        """Looks at the streams of sites again when the next window of a retiring key closes."""
        self.close()
        now_ms = self._clock.now_ms()
        windows = [site.retiring_until_ms for site in projection.sites if site.retiring_until_ms]
        closing = min((until for until in windows if until > now_ms), default=None)
        if closing is not None:
            # At least once an hour: the wall clock may be set, and timers follow another one.
            wait = min(closing - now_ms, _LONGEST_WAIT_MS) / 1000
            self._retirement = self._clock.call_later(wait, lambda: self._retire(projection))

    def _retire(self, projection: Projection) -> None:
        for session in self._sites:
            self._apply_to_site(session, projection)
        self._await_retirement(projection)

    async def _return_leases(self, runner_ids: list[str]) -> None:
        for runner_id in runner_ids:
            held = await self._store.held(runner_id)
            leases = [LeaseRef(job.stub.id, job.lease_id) for job in held]
            if leases:
                await self._store.release_leases(runner_id, leases, ReleaseReason.REVOKED)
                _log.info("leases_of_revoked_device_returned", runner_id=runner_id, leases=len(leases))


def _is_cut_off(device: ProjectedDevice, new: Projection) -> bool:
    """The device could act under the old projection and cannot under the new one."""
    if device.revoked:
        return False
    now = new.device(device.runner_id)
    return now is None or now != device


def _key_replaced() -> ServiceError:
    return ServiceError(
        grpc.StatusCode.UNAUTHENTICATED,
        "BAD_SIGNATURE",
        "the key of this stream is no longer this caller's; sign with the current one",
    )
