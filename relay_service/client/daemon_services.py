"""What a daemon's configured services offer at this moment, and the handlers that put them to work."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from relay_service.client.backends.base import Backend, BackendFailure, RunCanceled, RunRequest
from relay_service.client.backends.factory import open_backend
from relay_service.client.daemon_jobs import Handler, JobContext
from relay_service.client.outcomes import (
    CanceledOutcome,
    ErrorOutcome,
    OkOutcome,
    Outcome,
    RunMetadata,
    SealedOutcome,
)
from relay_service.client.service_config import ServiceConfig
from relay_service.core.model import Audience, Capability, WithheldKind
from service_common.clocks import Clock

logger = logging.getLogger("sealwork.client")

_FAILURES: Final = {
    "service_unavailable": "the service does not answer at the moment",
    "timeout": "the service took too long",
    "output-too-large": "the answer was larger than is allowed",
}


@dataclass(frozen=True, slots=True)
class Offer:
    """What is advertised."""

    matrix: tuple[Capability, ...]
    withheld: tuple[WithheldKind, ...]


class Services:
    """The configured services of one daemon."""

    def __init__(
        self,
        services: Sequence[ServiceConfig],
        defaults: Mapping[str, str],
        environment: Mapping[str, str],
        clock: Clock,
        *,
        named_by_grant: bool = False,
    ) -> None:
        """Make their back ends; nothing is connected or started yet.

        Args:
            services: Their configuration.
            defaults: For a kind that several can run, the one that does.
            environment: Of this process: API keys, and PATH and LANG of commands.
            clock: Measures runs.
            named_by_grant: A control plane's grants name the service of each job, so that several of a kind
                can be offered side by side.

        Raises:
            ConfigError: An API key cannot be read.
        """
        self._services = {service.service: service for service in services}
        self._defaults = defaults
        self._clock = clock
        self._named_by_grant = named_by_grant
        self._backends = {
            name: open_backend(each, environment, clock) for name, each in self._services.items()
        }

    async def health(self) -> Mapping[str, bool]:
        """Ask every service whether it would answer now; the answers by the owner's names for them."""
        answers = await asyncio.gather(*(backend.detect() for backend in self._backends.values()))
        return dict(zip(self._backends, answers, strict=True))

    def offer(self, health: Mapping[str, bool]) -> Offer:
        """Return what can be advertised: what is healthy, but nothing where the owner has to choose first."""
        matrix: list[Capability] = []
        withheld: list[WithheldKind] = []
        for kind in sorted({kind for service in self._services.values() for kind in service.kinds}):
            chosen = None if self._named_by_grant else self._defaults.get(kind)
            able = [
                service
                for service in self._services.values()
                if kind in service.kinds and health.get(service.service) and chosen in (None, service.service)
            ]
            if len(able) == 1 or self._named_by_grant:
                matrix.extend(self._row(kind, service) for service in able)
            elif able:
                claimants = tuple((service.service, Audience(service.offer_scope)) for service in able)
                withheld.append(WithheldKind(kind, claimants))
        return Offer(tuple(matrix), tuple(withheld))

    def handlers(self) -> Mapping[str, Handler]:
        """Return a handler for every kind that is configured."""
        return {kind: self._handle for service in self._services.values() for kind in service.kinds}

    async def close(self) -> None:
        """Give up what the back ends hold."""
        for backend in self._backends.values():
            await backend.close()

    def _row(self, kind: str, service: ServiceConfig) -> Capability:
        backend = self._backends[service.service]
        return Capability(
            kind=kind,
            service=service.service,
            backend_id=backend.backend_id,
            backend_class=backend.backend_class,
            model=backend.model,
            offer_scope=Audience(service.offer_scope),
        )

    async def _handle(self, context: JobContext) -> SealedOutcome:
        backend = self._backends[context.capability.service]
        started = self._clock.monotonic()
        try:
            return await _answered(backend, context)
        except BackendFailure as error:
            failed = ErrorOutcome(error.code, _FAILURES[error.code], error.retryable)
            return SealedOutcome(failed, self._metadata(backend, started))
        except RunCanceled:
            outcome: Outcome = CanceledOutcome()
            return SealedOutcome(outcome, self._metadata(backend, started))

    def _metadata(self, backend: Backend, started: float) -> RunMetadata:
        duration_ms = max(0, round((self._clock.monotonic() - started) * 1000))
        return RunMetadata(backend.model, backend.backend_class, duration_ms)


async def _answered(backend: Backend, context: JobContext) -> SealedOutcome:
    if isinstance(context.payload, str):
        # No back end runs a kind of work that this library does not know.
        raise BackendFailure("service_unavailable")
    request = RunRequest(context.kind, context.payload, context.limits)
    result = await backend.run(request, context.cancelled)
    ran = RunMetadata(
        model=backend.model,
        backend_class=backend.backend_class,
        duration_ms=result.duration_ms,
        stop=result.stop,
        stop_reported=result.stop_reported,
    )
    return SealedOutcome(OkOutcome(result.text), ran)
