"""Two relays on one Valkey server: sites connect to one, devices to the other."""

from bench.our_relay.server import OurServer
from bench.process_stats import ServerMeter
from bench.stores.valkey_server import ValkeyServer
from relay_service.core.projection import Projection


class TwoRelays:
    """Three processes on the server's core: every job crosses from one relay to the other, and back.

    Args:
        options: further options of both relays.
    """

    def __init__(self, *options: str) -> None:
        self._options = options
        self._valkey = ValkeyServer()
        self._relays: list[OurServer] = []

    async def start(self, projection: Projection) -> None:
        """As a deployment's.

        Raises:
            VariantUnavailableError: there is no Valkey server, or one of them did not come up.
        """
        await self._valkey.start()
        for _ in range(2):
            relay = OurServer("--store", self._valkey.url, *self._options)
            self._relays.append(relay)
            await relay.start(projection)

    @property
    def site_address(self) -> str:
        """Where sites connect."""
        return self._relays[0].address

    @property
    def device_address(self) -> str:
        """Where devices connect."""
        return self._relays[1].address

    async def stop(self) -> None:
        for relay in self._relays:
            await relay.stop()
        self._relays.clear()
        await self._valkey.stop()

    def meter(self) -> ServerMeter:
        """Starts counting what the relays and the Valkey server take."""
        relays = [pid for relay in self._relays for pid in relay.process_ids]
        return ServerMeter([*relays, self._valkey.process_id])
