"""Again and again: journal entries that are too old go, and tasks that have been over for long enough."""

from collections.abc import Mapping
from random import Random
from typing import Final

import structlog

from durable_service.blobs.base import BlobStore
from durable_service.core.states import TaskState
from durable_service.purged_bytes import remove_bytes
from durable_service.store.base import TaskStore
from service_common.clocks import Clock
from service_common.metrics import Metrics

_log: Final = structlog.get_logger(__name__)

_PERIOD_SECONDS: Final = 60.0
# Several replicas share the work better when they do not begin together.
_SPREAD: Final = 0.2
_EVENTS_AT_ONCE: Final = 1_000
_TASKS_AT_ONCE: Final = 100
# A round ends at some time, whatever has piled up; the next one goes on from there.
_BATCHES: Final = 100


class RetentionRounds:
    """One round a minute. Rounds of several replicas do not harm each other: what has gone is gone."""

    def __init__(
        self,
        store: TaskStore,
        blobs: BlobStore,
        clock: Clock,
        metrics: Metrics,
        *,
        purge_after_ms: Mapping[TaskState, int],
        retention_ms: int,
    ) -> None:
        """Bring together what a round needs.

        Args:
            purge_after_ms: by how a task ended; tasks that ended otherwise are kept.
            retention_ms: no task is purged before it has been over for this long, whatever the ages say.
        """
        self._store = store
        self._blobs = blobs
        self._clock = clock
        self._random = Random()  # noqa: S311 - spreads load, keeps no secret
        self._ages_ms = {state: max(age_ms, retention_ms) for state, age_ms in purge_after_ms.items()}
        self._dropped = metrics.counter(
            "durable_journal_entries_dropped_total", "Journal entries dropped because of their age"
        )

    async def run(self) -> None:
        """Makes rounds until cancelled."""
        while True:
            await self._clock.sleep(_PERIOD_SECONDS * self._random.uniform(1 - _SPREAD, 1 + _SPREAD))
            try:
                await self.round()
            except Exception as error:  # noqa: BLE001 - the next round tries again
                _log.error("retention_failed", exc_info=error)

    async def round(self) -> None:
        """Removes what is too old now."""
        await self._trim()
        if self._ages_ms:
            now_ms = await self._store.now_ms()
            for each in await self._store.counts():
                age_ms = self._ages_ms.get(each.state)
                if age_ms is not None and each.tasks:
                    # The bound of the store is exclusive, and a task is old enough when it has the very age.
                    await self._purge(each.tenant_id, each.state, now_ms - age_ms + 1)

    async def _trim(self) -> None:
        for _ in range(_BATCHES):
            dropped = await self._store.trim_events(_EVENTS_AT_ONCE)
            self._dropped.inc(dropped)
            if not dropped:
                return

    async def _purge(self, tenant_id: str, state: TaskState, ended_before_ms: int) -> None:
        removed = 0
        try:
            for _ in range(_BATCHES):
                keys = await self._store.purgeable(
                    tenant_id, ended_before_ms, _TASKS_AT_ONCE, frozenset({state})
                )
                purged = await self._store.purge(keys, ended_before_ms) if keys else []
                removed += len(purged)
                await remove_bytes(self._blobs, purged)
                if not purged:
                    return
        finally:
            if removed:
                _log.info("tasks_purged", tenant=tenant_id, state=state.value, removed=removed)
