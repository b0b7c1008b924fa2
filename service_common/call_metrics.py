"""What every RPC method counts, under the names that gRPC dashboards know."""

from typing import Final

import grpc
from prometheus_client import Counter, Histogram

from service_common.metrics import Metrics

_LABELS: Final = ("grpc_service", "grpc_method", "grpc_type")
_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class CallMetrics:
    """The call metrics of one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._started = metrics.counter("grpc_server_started", "RPCs started.", _LABELS)
        self._handled = metrics.counter(
            "grpc_server_handled", "RPCs ended, by status code.", (*_LABELS, "grpc_code")
        )
        self._seconds = metrics.histogram(
            "grpc_server_handling_seconds", "Time from the start of an RPC to its end.", _LABELS, _SECONDS
        )
        self._refused = metrics.counter(
            "sealwork_refused_calls", "RPCs refused, by error reason.", ("grpc_service", "reason")
        )

    def of(self, method: str, kind: str) -> "MethodMetrics":
        """Return the metrics of one method.

        Args:
            method: Full method name with its leading slash.
            kind: `unary`, `client_stream`, `server_stream` or `bidi_stream`.
        """
        service, _, name = method[1:].rpartition("/")
        return MethodMetrics(
            self._started.labels(service, name, kind),
            self._seconds.labels(service, name, kind),
            self._handled,
            self._refused,
            (service, name, kind),
        )


class MethodMetrics:
    """The metrics of one method, looked up once."""

    def __init__(
        self,
        started: Counter,
        seconds: Histogram,
        handled: Counter,
        refused: Counter,
        labels: tuple[str, str, str],
    ) -> None:
        self._started = started
        self._seconds = seconds
        self._handled = handled
        self._refused = refused
        self._labels = labels
        self._by_code: dict[grpc.StatusCode, Counter] = {}

    def begin(self) -> None:
        self._started.inc()

    def end(self, code: grpc.StatusCode, seconds: float) -> None:
        counter = self._by_code.get(code)
        if counter is None:
            counter = self._by_code[code] = self._handled.labels(*self._labels, code.name)
        counter.inc()
        self._seconds.observe(seconds)

    def refuse(self, reason: str) -> None:
        self._refused.labels(self._labels[0], reason).inc()
