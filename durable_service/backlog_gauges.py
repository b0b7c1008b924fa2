"""How much waits, over all tenants: what an operator is woken by."""

from typing import Final

import structlog

from durable_service.store.base import Backlog, TaskStore
from service_common.clocks import Clock
from service_common.metrics import Metrics

_log: Final = structlog.get_logger(__name__)

_PERIOD_SECONDS: Final = 15.0
# Tenants beyond these are not looked at: the gauges are for being woken, not for bills.
_MOST_TENANTS: Final = 1_000
_COUNTS: Final = {
    "claimable": "Tasks that a worker could claim now",
    "live_leases": "Leases that are held",
    "unknown_actions": "Actions whose outcome nobody knows",
    "pending_approvals": "Approvals that wait for their approvers",
}
_AGES: Final = {
    "oldest_claimable_ms": ("claimable", "How long the longest of them has waited"),
    "oldest_unknown_ms": ("unknown_actions", "How long the oldest of them has waited"),
    "oldest_pending_ms": ("pending_approvals", "How long the oldest of them has waited"),
}


class BacklogGauges:
    """Measures now and then; no label names a tenant."""

    def __init__(self, store: TaskStore, clock: Clock, metrics: Metrics) -> None:
        self._store = store
        self._clock = clock
        self._counts = {name: metrics.gauge(f"durable_{name}", meaning) for name, meaning in _COUNTS.items()}
        self._ages = {
            name: metrics.gauge(f"durable_{subject}_oldest_seconds", meaning)
            for name, (subject, meaning) in _AGES.items()
        }

    async def run(self) -> None:
        """Measures until cancelled."""
        while True:
            try:
                await self.measure()
            except Exception as error:  # noqa: BLE001 - the next turn tries again
                _log.warning("backlog_not_measured", error_type=type(error).__name__)
            await self._clock.sleep(_PERIOD_SECONDS)

    async def measure(self) -> None:
        """Measures once."""
        tenants = sorted({count.tenant_id for count in await self._store.counts()})
        found = [await self._store.backlog(tenant) for tenant in tenants[:_MOST_TENANTS]]
        now_ms = await self._store.now_ms()
        for name, gauge in self._counts.items():
            gauge.set(sum(getattr(backlog, name) for backlog in found))
        for name, gauge in self._ages.items():
            gauge.set(_age_seconds(found, name, now_ms))


def _age_seconds(found: list[Backlog], name: str, now_ms: int) -> float:
    instants = [since_ms for backlog in found if (since_ms := getattr(backlog, name)) is not None]
    return max(0, now_ms - min(instants)) / 1000 if instants else 0.0
