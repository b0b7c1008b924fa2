"""Sites that waste windows: when the operator is told about one."""

from collections.abc import Iterable
from dataclasses import dataclass

from relay_service.core.limits import CHURN_EXPIRIES, CHURN_QUIET_MS, CHURN_WINDOW_MS
from relay_service.core.model import ChurnReport


@dataclass(frozen=True, slots=True)
class Churn:
    """Windows that a route wasted lately.

    Attributes:
        lapses_at_ms: when each of them ended, oldest first.
        reported_at_ms: when the operator was last told.
    """

    lapses_at_ms: tuple[int, ...] = ()
    reported_at_ms: int | None = None


def record_lapse(churn: Churn, now_ms: int) -> tuple[Churn, bool]:
    """Counts one more wasted window.

    Returns:
        The new record and whether to report it: at least 6 lapses within the last
        300,000 ms, and no report within the last 3,600,000 ms.
    """
    lapses = (*(at for at in churn.lapses_at_ms if at >= now_ms - CHURN_WINDOW_MS), now_ms)
    quiet = churn.reported_at_ms is None or churn.reported_at_ms <= now_ms - CHURN_QUIET_MS
    if len(lapses) >= CHURN_EXPIRIES and quiet:
        return Churn(lapses, now_ms), True
    return Churn(lapses, churn.reported_at_ms), False


def newest_first(reports: Iterable[ChurnReport]) -> list[ChurnReport]:
    """In the order in which an operator reads them."""
    return sorted(reports, key=lambda report: (-report.at_ms, report.route.site_id, report.route.owner))
