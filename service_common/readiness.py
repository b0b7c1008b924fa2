"""Asking the stores whether they serve."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from service_common.clocks import Clock
from service_common.deadlines import within
from service_common.health import ServingState

_log: Final = structlog.get_logger(__name__)

Probe = Callable[[], Awaitable[bool]]


class Readiness:
    """Keeps the serving state current by asking each service's store.

    An answer counts for its time to live, so health checks cost the store nothing however many ask. An answer
    that does not come in time is a no.
    """

    def __init__(
        self,
        clock: Clock,
        state: ServingState,
        probes: Mapping[str, Probe],
        *,
        ttl_ms: int = 5_000,
        timeout_ms: int = 2_000,
    ) -> None:
        """Ask for each service by its probe; services that share a probe share its answer."""
        self._clock = clock
        self._state = state
        self._services: dict[Probe, list[str]] = {}
        for service, probe in probes.items():
            self._services.setdefault(probe, []).append(service)
        self._ttl_seconds = ttl_ms / 1000
        self._timeout_seconds = timeout_ms / 1000

    async def run(self) -> None:
        """Ask again and again, until cancelled."""
        while True:
            await self.refresh()
            await self._clock.sleep(self._ttl_seconds)

    async def refresh(self) -> None:
        """Ask every probe once and apply the answers."""
        await asyncio.gather(*(self._ask(probe) for probe in self._services))

    async def _ask(self, probe: Probe) -> None:
        ready = await self._answer(probe)
        for service in self._services[probe]:
            if self._state.set_ready(service, ready=ready):
                (_log.info if ready else _log.warning)("readiness changed", service=service, ready=ready)

    async def _answer(self, probe: Probe) -> bool:
        async def ask() -> bool:
            return await probe()

        try:
            return await within(self._clock, self._timeout_seconds, ask())
        except Exception as error:  # noqa: BLE001 - a store that fails in any way is not ready
            _log.warning("readiness probe failed", error_type=type(error).__name__)
            return False
