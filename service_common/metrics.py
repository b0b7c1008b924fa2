"""Declaring metrics, and showing them over HTTP on a port of their own."""

import threading
from collections.abc import Sequence
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    start_http_server,
)

from service_common.errors import SettingsError


class Metrics:
    """The metrics of one server, in a registry of its own so that two in one process do not clash."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def counter(self, name: str, meaning: str, labels: Sequence[str] = ()) -> Counter:
        """Declare a counter; it is shown with `_total` added to its name."""
        return Counter(name, meaning, labels, registry=self.registry)

    def gauge(self, name: str, meaning: str, labels: Sequence[str] = ()) -> Gauge:
        """Declare a gauge."""
        return Gauge(name, meaning, labels, registry=self.registry)

    def histogram(
        self, name: str, meaning: str, labels: Sequence[str] = (), buckets: Sequence[float] = ()
    ) -> Histogram:
        """Declare a histogram; without buckets it has those that suit seconds."""
        return Histogram(
            name, meaning, labels, registry=self.registry, buckets=buckets or Histogram.DEFAULT_BUCKETS
        )

    def value(self, name: str, **labels: str) -> float:
        """Return a sample as it would be scraped now; 0 when nothing was counted under these labels."""
        return self.registry.get_sample_value(name, labels) or 0.0

    def expose(self, port: int, address: str = "127.0.0.1") -> "MetricsEndpoint":
        """Serve the metrics at `http://address:port/metrics` from a thread.

        Args:
            port: TCP port; 0 takes a free one.
            address: Address to listen on. Metrics carry no payload, but they are served to whoever asks.

        Raises:
            OSError: The port is taken.
        """
        server, thread = start_http_server(port, addr=address, registry=self.registry)
        return MetricsEndpoint(server, thread)

    def expose_at(self, address: str) -> "MetricsEndpoint | None":
        """Serve the metrics at an address from the settings, `HOST:PORT`; nowhere when it is empty.

        Raises:
            SettingsError: Nothing can be served there.
        """
        if not address:
            return None
        host, _, port = address.rpartition(":")
        try:
            return self.expose(int(port), host.strip("[]"))
        except OSError:
            raise SettingsError(
                f"cannot serve metrics on {address}: the port is taken, or the address is not of this machine"
            ) from None


class MetricsEndpoint:
    """An HTTP endpoint that shows metrics."""

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:
        self._server = server
        self._thread = thread

    @property
    def port(self) -> int:
        """The port that was bound."""
        return self._server.server_port

    def close(self) -> None:
        """Stop serving. Blocks for up to half a second, until the thread has noticed."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
