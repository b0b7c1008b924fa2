"""Two relays on one Valkey server: sites connect to one, devices to the other."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import grpc.aio

from relay_service.client.keys import Keys
from relay_service.core.projection import Projection
from relay_service.process import Gap
from relay_service.projection import ProjectionSource
from relay_service.server import RelayServer, ServerOptions
from relay_service.store.valkey import ValkeyRoutingStore
from relay_service.store_guard import guarded
from service_common.clocks import ManualClock
from service_common.listeners import Listener
from service_common.sessions.limits import SessionTimes
from tests.harness.waiting import eventually
from tests.relay_service.raw_client import RawDaemon, RawOperator, RawStream
from tests.relay_service.relay_fixture import PROJECTION, START_MS, RelayUnderTest, keys_of


@dataclass
class TwoRelays(RelayUnderTest):
    """What the tests of one relay use, with its two sides apart.

    `server`, `store` and `channel` are those of the relay that sites connect to.
    """

    device_server: RelayServer = field(kw_only=True)
    device_channel: Any = field(kw_only=True)
    stores: list[ValkeyRoutingStore] = field(kw_only=True)

    def daemon(self, name: str = "runner-1", *, keys: Keys | None = None, channel: Any = None) -> RawDaemon:
        return super().daemon(name, keys=keys, channel=channel or self.device_channel)

    def operator(self, name: str = "operator") -> RawOperator:
        return RawOperator(self.device_channel, name, keys_of(name), self.clock.now_ms)

    async def told(self, stream: RawStream, arm: str) -> Any:
        # The clock of the test moves faster than the relays' round trips to the store, so what is due may
        # be noticed at a later turn of their timers: time goes on until it is.
        async def came() -> bool:
            await self.pass_time(250, alive=[stream])
            return any(item.WhichOneof("item") == arm for item in stream.items)

        await eventually(came, describe=f"{arm} to be told")
        return await stream.next(arm)

    @property
    def servers(self) -> Sequence[RelayServer]:
        return [self.server, self.device_server]

    def server_of(self, plane: str) -> RelayServer:
        return self.device_server if plane == "daemon" else self.server


@asynccontextmanager
async def two_relays(
    url: str, times: SessionTimes | None = None, *, projection: Projection = PROJECTION, **options: Any
) -> AsyncIterator[TwoRelays]:
    """Serves two relays that share nothing but the server, and the clock of the test.

    Args:
        url: of the server; with two of them, parted by a space, each relay has a way of its own to it.
    """
    clock = ManualClock(START_MS)
    source = ProjectionSource(projection)
    gaps = [Gap(), Gap()]
    urls = url.split() if " " in url else [url, url]
    stores = [
        ValkeyRoutingStore(way, clock_setting=lambda: str(clock.now_ms()), on_gap=gap.note)
        for way, gap in zip(urls, gaps, strict=True)
    ]
    for store in stores:
        await store.start()
    given = ServerOptions(
        [Listener("127.0.0.1:0")],
        times=times or SessionTimes(),
        operators={"operator": keys_of("operator").public},
    )
    given = replace(given, **options)
    servers = [RelayServer(guarded(store), source, given, clock=clock, random=Random(7)) for store in stores]
    for gap, server in zip(gaps, servers, strict=True):
        gap.tell = [server.relay.dispatch.note_gap]
    try:
        async with (
            servers[0] as first,
            servers[1] as second,
            grpc.aio.insecure_channel(first.address) as channel,
            grpc.aio.insecure_channel(second.address) as device_channel,
        ):
            yield TwoRelays(
                first,
                stores[0],  # type: ignore[arg-type]
                source,
                clock,
                channel,
                device_server=second,
                device_channel=device_channel,
                stores=stores,
            )
    finally:
        for store in stores:
            await store.close()
