"""Several services on one database, each a process of its own, and the way to any of them that is alive."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import grpc.aio

from durable_service.client import Client, PrincipalKey
from durable_service.store.clock import wall_ms
from tests.durable_service.crash.commits import told_leases
from tests.durable_service.crash.ground import begin_server, write_principals
from tests.durable_service.crash.kept import Kept
from tests.durable_service.crash.nursery import Life, Nursery
from tests.durable_service.raw_client import Party
from tests.harness.fault_proxy import FaultProxy
from tests.relay_service.store.valkey_fixture import free_port

LEASE_MS = 3_000


@dataclass
class Replica:
    """One service at one address, ended and begun again.

    Attributes:
        options: As `lives.serve` takes them.
        lives: Every process that it was, the last one now.
    """

    nursery: Nursery
    folder: Path
    kept: Kept
    lease_ms: int = LEASE_MS
    options: Mapping[str, Any] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    lives: list[Life] = field(default_factory=list)
    alive: bool = False

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def lines(self) -> list[str]:
        return [line for life in self.lives for line in life.lines]

    async def start(self) -> None:
        life = await begin_server(
            self.nursery,
            self.folder,
            self.port,
            self.kept,
            lease_ms=self.lease_ms,
            tell_leases=True,
            **self.options,
        )
        self.lives.append(life)
        await life.says("is serving", 60)
        self.alive = True

    async def kill(self) -> None:
        """Ends it without a chance to say or write anything."""
        self.alive = False
        await self.lives[-1].kill()

    async def terminate(self) -> None:
        """Asks it to leave, as whoever updates a fleet does."""
        self.alive = False
        self.lives[-1].signal(signal.SIGTERM)
        await self.lives[-1].end(60)


class AnyReplica(FaultProxy):
    """One address for all replicas: each new connection goes to one of those that are alive."""

    def __init__(self, replicas: Sequence[Replica], random: Random) -> None:
        self._replicas = replicas
        self._random = random
        super().__init__("127.0.0.1", replicas[0].port)

    @property
    def target(self) -> tuple[str, int]:
        alive = [replica for replica in self._replicas if replica.alive] or self._replicas
        return ("127.0.0.1", self._random.choice(alive).port)

    @target.setter
    def target(self, _: tuple[str, int]) -> None:
        """It is chosen for each connection."""


@dataclass
class Fleet:
    """Replicas, the balancer in front of them, and the keys of those who use them."""

    replicas: Sequence[Replica]
    balancer: AnyReplica
    keys: Mapping[str, PrincipalKey]
    clients: list[Client] = field(default_factory=list)
    _channels: dict[int, grpc.aio.Channel] = field(default_factory=dict)

    def client(self, principal: str, address: str | None = None) -> Client:
        """A client of the balancer, or of one replica; closed with the fleet."""
        client = Client(address or self.balancer.address, principal_id=principal, key=self.keys[principal])
        self.clients.append(client)
        return client

    def party(self, principal: str, replica: int) -> Party:
        """One that speaks in raw messages to one replica."""
        channel = self._channels.get(replica)
        if channel is None:
            channel = self._channels[replica] = grpc.aio.insecure_channel(
                self.replicas[replica].address, options=[("grpc.use_local_subchannel_pool", 1)]
            )
        return Party(channel, principal, self.keys[principal].signer, wall_ms)

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        for channel in self._channels.values():
            await channel.close()

    async def leases(self) -> list[tuple[str, int, str, int]]:
        """What all processes have written of leases: task, fence, worker and the end."""
        told = await asyncio.gather(*(told_leases(lambda r=r: r.lines) for r in self.replicas))  # type: ignore[misc]
        return [lease for leases in told for lease in leases]


@contextlib.asynccontextmanager
async def fleet_on(
    kept: Kept,
    folder: Path,
    nursery: Nursery,
    size: int,
    *,
    random: Random | None = None,
    lease_ms: int = LEASE_MS,
    options: Sequence[Mapping[str, Any]] = (),
) -> AsyncIterator[Fleet]:
    """A fleet that serves, ended with everything that was begun for it.

    Args:
        options: Of each replica.
    """
    keys = write_principals(folder)
    given = [*options, *[{}] * size][:size]
    replicas = [Replica(nursery, folder, kept, lease_ms, each) for each in given]
    # One after the other: each may find the database empty, yet only the first does.
    for replica in replicas:
        await replica.start()
    balancer = AnyReplica(replicas, random or Random(7))
    fleet = Fleet(replicas, balancer, keys)
    with balancer.listener:
        serving = asyncio.create_task(balancer.serve())
        try:
            yield fleet
        finally:
            await fleet.close()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await nursery.close()
