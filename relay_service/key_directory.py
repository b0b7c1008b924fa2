"""Who may call which plane, by the projection as it stands at this instant."""

from collections.abc import Callable

from relay_service.core.projection import Projection
from relay_service.planes.refusals import device_revoked
from service_common.clocks import Clock
from service_common.errors import ServiceError

_SITE_PLANE = "/sealwork.relay.v1.SitePlaneService/"
_DAEMON_PLANE = "/sealwork.relay.v1.DaemonPlaneService/"


class ProjectionKeys:
    """Sites on the site plane, devices on the daemon plane, the operator on the others.

    A device's signature never counts as a site's, whatever their names.

    Args:
        operator_keys: Ed25519 public keys by the operator's caller names.
    """

    def __init__(
        self,
        projection: Callable[[], Projection],
        clock: Clock,
        operator_keys: dict[str, bytes] | None = None,
    ) -> None:
        self._projection = projection
        self._clock = clock
        self._operator_keys = operator_keys or {}

    def keys_for(self, method: str, caller: str) -> tuple[bytes, ...] | None:
        """Ed25519 public keys acceptable for this caller on this plane."""
        if method.startswith(_DAEMON_PLANE):
            device = self._projection().device(caller)
            return None if device is None else (device.identity.identity,)
        if method.startswith(_SITE_PLANE):
            site = self._projection().site(caller)
            if site is None:
                return None
            identities = site.acceptable_identities(self._clock.now_ms())
            return tuple(identity.identity for identity in identities)
        key = self._operator_keys.get(caller)
        return None if key is None else (key,)

    def refusal_for(self, method: str, caller: str) -> ServiceError | None:
        """DEVICE_REVOKED, told only to one who has proved to be that device."""
        if not method.startswith(_DAEMON_PLANE):
            return None
        device = self._projection().device(caller)
        return device_revoked() if device is not None and device.revoked else None
