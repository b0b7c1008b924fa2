"""A relay that answers pairing calls as a test tells it, and a device that pairs on a clock of the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import grpc.aio

from relay_service.client.connection import Connection
from relay_service.client.daemon_pairing import PairedDevice, PairingCode, PairingEvents, pair_device
from relay_service.client.wire import identity_to_proto
from sealwork.relay.v1 import daemon_plane_pb2_grpc, pairing_pb2, site_directory_pb2
from service_common.clocks import ManualClock
from service_common.errors import ServiceError
from service_common.statuses import abort_call
from tests.harness.waiting import eventually
from tests.relay_service.client.real_relay import DEVICE_KEYS, SITE_KEYS

CODES = ("A" * 43, "B" * 43, "C" * 43, "D" * 43, "E" * 43)


def approval(**fields: Any) -> pairing_pb2.PairingApproval:
    """An approval for alice with one site, unless told otherwise."""
    site = site_directory_pb2.ConsentedSite(
        key_id=SITE_KEYS.key_id, identity=identity_to_proto(SITE_KEYS.public)
    )
    given: dict[str, Any] = {
        "runner_id": "desk-1",
        "owner": "alice",
        "directory": site_directory_pb2.SiteDirectory(sites=[site]),
    }
    return pairing_pb2.PairingApproval(**(given | fields))


@dataclass
class ScriptedPairing(daemon_plane_pb2_grpc.DaemonPlaneServiceServicer):
    """Answers each call with what is set at that moment.

    Attributes:
        state: of every pairing.
        refusals: what the next calls of a method are refused with, by its name.
        refusing: what all calls of a method are refused with.
        mute: watches say nothing at all.
        calls: names of the methods that were called.
    """

    state: Any = pairing_pb2.PAIRING_STATE_PENDING
    approval: pairing_pb2.PairingApproval = field(default_factory=approval)
    refusals: dict[str, list[ServiceError]] = field(default_factory=dict)
    refusing: dict[str, ServiceError] = field(default_factory=dict)
    mute: bool = False
    watching: int = 0
    calls: list[str] = field(default_factory=list)
    started: list[pairing_pb2.StartPairingRequest] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def StartPairing(
        self, request: pairing_pb2.StartPairingRequest, context: Any
    ) -> pairing_pb2.StartPairingResponse:
        await self._refuse("StartPairing", context)
        self.started.append(request)
        if self.state == pairing_pb2.PAIRING_STATE_EXPIRED:
            self.state = pairing_pb2.PAIRING_STATE_PENDING
        response = pairing_pb2.StartPairingResponse(
            device_code=CODES[len(self.started) - 1], user_code=f"AAAA-000{len(self.started)}"
        )
        response.expires_in.FromMilliseconds(600_000)
        response.poll_interval.FromMilliseconds(2_000)
        return response

    async def PollPairing(
        self, request: pairing_pb2.PollPairingRequest, context: Any
    ) -> pairing_pb2.PollPairingResponse:
        await self._refuse("PollPairing", context)
        return pairing_pb2.PollPairingResponse(state=self.state, approval=self._approval())

    async def WatchPairing(
        self, request: pairing_pb2.WatchPairingRequest, context: Any
    ) -> AsyncIterator[pairing_pb2.WatchPairingResponse]:
        await self._refuse("WatchPairing", context)
        self.watching += 1
        try:
            while True:
                # Read once: it may change while the answer is being written, and would then never be told.
                state, approved = self.state, self._approval()
                if not self.mute:
                    yield pairing_pb2.WatchPairingResponse(state=state, approval=approved)
                if state != pairing_pb2.PAIRING_STATE_PENDING:
                    return
                await self.news.wait()
                self.news.clear()
        finally:
            self.watching -= 1

    def decide(self, state: Any) -> None:
        """Changes the state, and tells those who watch."""
        self.state = state
        self.news.set()

    def _approval(self) -> pairing_pb2.PairingApproval | None:
        return self.approval if self.state == pairing_pb2.PAIRING_STATE_APPROVED else None

    async def _refuse(self, name: str, context: Any) -> None:
        self.calls.append(name)
        queue = self.refusals.get(name)
        error = queue.pop(0) if queue else self.refusing.get(name)
        if error is not None:
            await abort_call(context, error, "relay.sealwork.dev")


@dataclass
class PairingDevice:
    """A device that pairs, and what it was told to show."""

    clock: ManualClock
    codes: list[PairingCode] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    pairing: "asyncio.Task[PairedDevice]" = field(init=False)

    def start(self, address: str) -> None:
        events = PairingEvents(self.codes.append, self.troubles.append)
        work = pair_device(
            Connection(address), DEVICE_KEYS, "desk", events, clock=self.clock, random=Random(1)
        )
        self.pairing = asyncio.create_task(work)

    async def passing(self, until: Any, describe: str) -> None:
        """Lets time pass until something is so."""

        def passed() -> bool:
            self.clock.advance(100)
            return bool(until())

        await eventually(passed, 30, describe)

    async def end(self) -> PairedDevice:
        """Lets time pass until the pairing has ended."""
        await self.passing(self.pairing.done, "the end of the pairing")
        return await self.pairing


@asynccontextmanager
async def scripted_relay(address: str = "127.0.0.1:0") -> AsyncIterator[tuple[ScriptedPairing, str]]:
    """Serves a script, and yields it with its address."""
    # The other calls stay as generated: not implemented.
    script = ScriptedPairing()  # type: ignore[abstract]
    server = grpc.aio.server()
    daemon_plane_pb2_grpc.add_DaemonPlaneServiceServicer_to_server(script, server)
    port = server.add_insecure_port(address)
    await server.start()
    try:
        yield script, f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


@asynccontextmanager
async def pairing_at(address: str) -> AsyncIterator[PairingDevice]:
    """Pairs a device as long as the block lasts."""
    device = PairingDevice(ManualClock())
    device.start(address)
    try:
        yield device
    finally:
        device.pairing.cancel()
        await asyncio.wait([device.pairing])
