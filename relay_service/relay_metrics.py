"""What the relay counts, beside the calls themselves."""

import structlog

from relay_service.core.model import ChurnReport
from service_common.metrics import Metrics
from service_common.sessions.endings import EndReason

_log = structlog.get_logger(__name__)


class RelayMetrics:
    """Counters of the relay; labels are few and never hold an id that a caller chose."""

    def __init__(self, metrics: Metrics) -> None:
        self._churn = metrics.counter(
            "relay_unsealed_churn_total",
            "Sites that let sealing windows lapse, reported once an hour a route",
        )
        self._ended = metrics.counter(
            "relay_streams_ended_total", "Streams by how they ended", ["plane", "end"]
        )
        self._open = metrics.gauge("relay_streams_open", "Streams open now", ["plane"])

    def churn(self, report: ChurnReport) -> None:
        """A site lets its windows lapse for an owner."""
        self._churn.inc()
        _log.warning(
            "unsealed_churn",
            site_id=report.route.site_id,
            owner=report.route.owner,
            expiries=report.expiries,
            window_ms=report.window_ms,
        )

    def stream_opened(self, plane: str) -> None:
        """A hello was accepted."""
        self._open.labels(plane).inc()

    def stream_ended(self, plane: str, reason: EndReason) -> None:
        """A stream that was accepted has ended."""
        self._open.labels(plane).dec()
        self._ended.labels(plane, reason.value).inc()
