"""A relay on a loopback port with one site and one person's devices, for tests of the clients."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from relay_service.client.backends.base import RunLimits
from relay_service.client.daemon_config import Limits
from relay_service.client.keys import Keys
from relay_service.core.model import Audience, Capability
from relay_service.core.projection import Consent, ProjectedDevice, ProjectedSite, Projection
from relay_service.projection import ProjectionSource
from relay_service.server import RelayServer, ServerOptions
from relay_service.store.memory import MemoryRoutingStore
from service_common.clocks import Clock, SystemClock
from service_common.listeners import Listener
from service_common.sessions.limits import SessionTimes

SITE_KEYS = Keys(b"\x01" * 32, b"\x02" * 32, 1)
DEVICE_KEYS = Keys(b"\x03" * 32, b"\x04" * 32, 1)
OTHER_DEVICE_KEYS = Keys(b"\x09" * 32, b"\x0a" * 32, 1)
STRANGER_KEYS = Keys(b"\x07" * 32, b"\x08" * 32, 1)

GENERATE = Capability(
    kind="llm.generate",
    service="desk",
    backend_id="llamacpp",
    backend_class="http",
    model="small",
    offer_scope=Audience.PRIVATE,
)
LIMITS = Limits(own=RunLimits(max_output_bytes=4_194_304, wall_clock_seconds=600))


def projection(*, revoked: bool = False, consented: bool = True) -> Projection:
    return Projection(
        sites=(ProjectedSite("shop", SITE_KEYS.public),),
        consents=(Consent("alice", "shop"),) if consented else (),
        devices=(
            ProjectedDevice("alice", "desk", DEVICE_KEYS.public, revoked=revoked),
            ProjectedDevice("alice", "lap", OTHER_DEVICE_KEYS.public),
        ),
    )


@dataclass
class RealRelay:
    """A running relay. `restart` forgets everything that its store held."""

    times: SessionTimes
    clock: Clock
    options: dict[str, Any] = field(default_factory=dict)
    source: ProjectionSource = field(default_factory=lambda: ProjectionSource(projection()))
    server: RelayServer = field(init=False)
    address: str = ""

    async def start(self) -> None:
        self.server = RelayServer(
            MemoryRoutingStore(self.clock.now_ms, lambda: uuid.uuid4().hex),
            self.source,
            ServerOptions([Listener(self.address or "127.0.0.1:0")], times=self.times, **self.options),
            clock=self.clock,
        )
        await self.server.start()
        self.address = self.server.address

    async def stop(self) -> None:
        await self.server.stop()

    async def restart(self) -> None:
        await self.stop()
        await self.start()


@asynccontextmanager
async def real_relay(
    times: SessionTimes | None = None, clock: Clock | None = None, **options: Any
) -> AsyncIterator[RealRelay]:
    relay = RealRelay(times or SessionTimes(), clock or SystemClock(), options)
    await relay.start()
    try:
        yield relay
    finally:
        await relay.stop()
