"""Real time for the store: lapsed windows, leases and deadlines count when they are due."""

import asyncio

import structlog

from relay_service.dispatch import Dispatch
from relay_service.inbox_delivery import InboxDelivery
from relay_service.store.base import RoutingStore
from service_common.clocks import Clock

_log = structlog.get_logger(__name__)

# How late a change by time alone is noticed at the most: what falls due may be added at any moment.
_LONGEST_WAIT_MS = 250


class Sweeper:
    """Lets time pass in the store, and has unsettled notices sent again."""

    def __init__(
        self,
        store: RoutingStore,
        inbox: InboxDelivery,
        dispatch: Dispatch,
        clock: Clock,
        redeliver_ms: int = 5_000,
    ) -> None:
        self._store = store
        self._inbox = inbox
        self._dispatch = dispatch
        self._clock = clock
        self._redeliver_seconds = redeliver_ms / 1000
        self._failing = False

    async def run(self) -> None:
        """Sweeps until cancelled."""
        redeliver_at = self._clock.monotonic() + self._redeliver_seconds
        wait_ms = 1
        while True:
            await self._clock.sleep(wait_ms / 1000)
            wait_ms = _LONGEST_WAIT_MS
            try:
                await self._store.sweep()
                self._dispatch.make_up()
                wait_ms = await self._wait_ms()
                self._note_success()
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - see below
                # The next turn tries again; every operation of the store counts time as well.
                self._note_failure(error)
            if self._clock.monotonic() >= redeliver_at:
                redeliver_at = self._clock.monotonic() + self._redeliver_seconds
                for site_id in self._inbox.overdue():
                    self._dispatch.deliver(site_id)

    def _note_failure(self, error: Exception) -> None:
        # Once an outage: the turns come four times a second.
        if not self._failing:
            self._failing = True
            _log.error("sweep_failed", exc_info=error)

    def _note_success(self) -> None:
        if self._failing:
            self._failing = False
            _log.info("sweep_works_again")

    async def _wait_ms(self) -> int:
        due = await self._store.next_due_ms(_LONGEST_WAIT_MS)
        if due is None:
            return _LONGEST_WAIT_MS
        return min(_LONGEST_WAIT_MS, max(1, due - await self._store.now()))
