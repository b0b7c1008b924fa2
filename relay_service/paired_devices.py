"""The devices of a projection by their key."""

from relay_service.core.projection import ProjectedDevice, Projection


class PairedDevices:
    """An index that is made once for each projection that is asked about."""

    def __init__(self) -> None:
        self._projection: Projection | None = None
        self._devices: dict[bytes, ProjectedDevice] = {}

    def of(self, projection: Projection, identity: bytes) -> ProjectedDevice | None:
        """The device with this identity key, revoked ones included."""
        if projection is not self._projection:
            self._projection = projection
            self._devices = {device.identity.identity: device for device in reversed(projection.devices)}
        return self._devices.get(identity)
