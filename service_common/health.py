"""What load balancers and orchestrators are told."""

import asyncio
from collections.abc import Iterable
from typing import Final, TypeAlias

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from service_common.errors import ServiceError

# Serving as long as the process answers at all: a restart does not mend a store that is away.
LIVENESS: Final = "liveness"

_Context: TypeAlias = grpc.aio.ServicerContext[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse]


class ServingState:
    """Which services of the process can serve now.

    A service serves when it is ready, the event loop keeps up, and no drain has begun. The empty name stands
    for all of them together, `liveness` for the process. Nothing is ready until it was said to be.
    """

    def __init__(self, services: Iterable[str]) -> None:
        """Know these services by full name."""
        self._ready = dict.fromkeys(services, False)
        self._lagging = False
        self._draining = False
        self._closed = False
        self._changed = asyncio.Event()

    @property
    def closed(self) -> bool:
        """Whether those who watch are being sent away."""
        return self._closed

    def set_ready(self, service: str, *, ready: bool) -> bool:
        """Say whether a service has what it needs, and return whether that is news.

        Raises:
            KeyError: The service is unknown.
        """
        if self._ready[service] is ready:
            return False
        self._ready[service] = ready
        self._tell()
        return True

    def set_lagging(self, *, lagging: bool) -> None:
        """Say whether the event loop is too late to serve."""
        if self._lagging is not lagging:
            self._lagging = lagging
            self._tell()

    def begin_shutdown(self) -> None:
        """Serve no more, for good."""
        self._draining = True
        self._tell()

    def close(self) -> None:
        """Send away those who watch, so that their streams do not hold up the end of the server."""
        self._closed = True
        self._tell()

    def is_serving(self, service: str) -> bool | None:
        """Return whether a service serves, or None when it is unknown."""
        if service == LIVENESS:
            return True
        if service and service not in self._ready:
            return None
        ready = self._ready[service] if service else all(self._ready.values())
        return ready and not self._lagging and not self._draining

    async def changed(self) -> None:
        """Return at the next change of anything."""
        await self._changed.wait()

    def _tell(self) -> None:
        # Everyone who waits now holds the old event; whoever comes later waits for the new one.
        self._changed.set()
        self._changed = asyncio.Event()


class HealthServicer(health_pb2_grpc.HealthServicer):
    """The standard health protocol.

    The servicer of grpcio-health-checking writes to a watcher while it holds the lock that every change of a
    status needs, so that one watcher who does not read could hold up a drain. Here a change waits for nobody.
    """

    def __init__(self, state: ServingState) -> None:
        self._state = state

    async def Check(
        self,
        request: health_pb2.HealthCheckRequest,
        context: _Context,  # noqa: ARG002
    ) -> health_pb2.HealthCheckResponse:
        serving = self._state.is_serving(request.service)
        if serving is None:
            raise ServiceError(grpc.StatusCode.NOT_FOUND, "SERVICE_UNKNOWN", "no such service is served here")
        return _response(serving=serving)

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: _Context) -> None:
        told: health_pb2.HealthCheckResponse | None = None
        while not self._state.closed:
            response = _response(serving=self._state.is_serving(request.service))
            if response != told:
                await context.write(response)
                told = response
                # Anything may have changed while the write waited.
                continue
            await self._state.changed()
        raise ServiceError(grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING", "the server is shutting down")


def _response(*, serving: bool | None) -> health_pb2.HealthCheckResponse:
    response = health_pb2.HealthCheckResponse
    if serving is None:
        return response(status=response.SERVICE_UNKNOWN)
    return response(status=response.SERVING if serving else response.NOT_SERVING)
