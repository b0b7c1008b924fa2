"""What was noticed of sites that let their windows lapse."""

from collections import deque

from relay_service.core.churn import newest_first
from relay_service.core.limits import CHURN_REPORT_RETENTION_MS, CHURN_REPORTS_PER_SITE
from relay_service.core.model import ChurnReport


class ChurnReports:
    """The last reports of each site."""

    def __init__(self) -> None:
        self._by_site: dict[str, deque[ChurnReport]] = {}

    def add(self, report: ChurnReport) -> None:
        reports = self._by_site.setdefault(report.route.site_id, deque(maxlen=CHURN_REPORTS_PER_SITE))
        reports.append(report)

    def recent(self, now_ms: int) -> list[ChurnReport]:
        """Those of the last day, newest first."""
        since_ms = now_ms - CHURN_REPORT_RETENTION_MS
        kept = [each for reports in self._by_site.values() for each in reports if each.at_ms > since_ms]
        return newest_first(kept)
