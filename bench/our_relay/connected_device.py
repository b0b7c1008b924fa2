"""A device that keeps a stream open by the client library, one of thousands in one process."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from time import perf_counter
from typing import TypeVar

import grpc.aio

from bench.our_relay.legs import Legs
from bench.our_relay.parties import daemon_hello
from bench.variant import VariantFailedError
from relay_service.client.connection import Connection
from relay_service.client.daemon_session import DAEMON_SESSION
from sealwork.relay.v1 import daemon_plane_pb2 as daemon
from sealwork.relay.v1 import job_pb2
from service_common.client_handshake import open_stream
from service_common.client_session_types import Hello
from service_common.client_stream import ClientStream
from service_common.clocks import SystemClock
from service_common.errors import ServiceError

_HELD_SECONDS = 20.0
_AT_ONCE = 64
_CLOCK = SystemClock()

T = TypeVar("T")


class ConnectedDevice:
    """Holds at most one job, renews it when told to, and notes when it is told of a cancel.

    Attributes:
        latencies: of renewals, from sending to verdict, in ms.
        asked_at: when the renewal was sent that has no verdict yet.
        lost: renewals that came back without the lease.
        on_cancel: told when the relay says that the job held is cancelled.
    """

    def __init__(self, owner: str, legs: Legs) -> None:
        self.owner = owner
        self.legs = legs
        self.latencies: list[float] = []
        self.asked_at: float | None = None
        self.lost = 0
        self.on_cancel: Callable[[], None] = lambda: None
        self._lease: job_pb2.LeaseRef | None = None
        self._holds = asyncio.Event()
        self._credit = 1
        self._renewals = 0
        self._channel: grpc.aio.Channel | None = None
        self._stream: ClientStream | None = None

    async def connect(self, address: str) -> None:
        """Opens the stream, on a connection of its own.

        Raises:
            VariantFailedError: the relay did not welcome it.
        """
        party = self.legs.device
        hello = Hello(daemon_hello(party, self._credit).SerializeToString(), self._credit)
        self._channel = Connection(address).session_channel()
        try:
            self._stream = await open_stream(
                self._channel,
                DAEMON_SESSION,
                self,
                lambda: hello,
                caller=party.caller_id,
                signer=party.keys.signer,
                clock=_CLOCK,
            )
        except ServiceError as error:
            raise VariantFailedError(f"the relay did not welcome {party.caller_id}: {error}") from error
        self._stream.start()

    async def close(self) -> None:
        if self._stream is not None:
            self._stream.abandon()
            await self._stream.ended.wait()
        if self._channel is not None:
            await self._channel.close()

    async def holds_a_job(self) -> None:
        """Returns when the payload of a job is here.

        Raises:
            VariantFailedError: none came in time.
        """
        try:
            async with asyncio.timeout(_HELD_SECONDS):
                await self._holds.wait()
        except TimeoutError:
            raise VariantFailedError(f"{self.legs.device.caller_id} was given no job") from None

    def renew(self) -> None:
        """Asks for the lease to be renewed."""
        assert self._stream is not None
        assert self._lease is not None
        self._renewals += 1
        self.asked_at = perf_counter()
        renew = daemon.Renew(renewal_id=self._renewals, leases=[self._lease])
        self._stream.send(daemon.DaemonItem(renew=renew), control=True)

    async def give_up(self) -> None:
        """Reports the job as cancelled, and has room for another one."""
        assert self._stream is not None
        assert self._lease is not None
        self._holds.clear()
        request = daemon.CompleteJobRequest(
            lease=self._lease,
            envelope=self.legs.canceled(self._lease.job_id),
            disposition=job_pb2.DISPOSITION_CANCELED,
        )
        await self._stream.request("complete_job", request)
        self._credit += 1
        self._stream.offer_credit(self._credit)

    def received(self, stream: ClientStream, arm: str, item: daemon.DaemonServerItem) -> None:
        """As the library's stream asks of its handler."""
        match arm:
            case "granted":
                lease = job_pb2.LeaseRef(job_id=item.granted.stub.id, lease_id=item.granted.lease.id)
                self._lease = lease
                stream.send(daemon.DaemonItem(grant_ack=daemon.GrantAck(leases=[lease])), control=True)
            case "payload_ready":
                self._holds.set()
            case "verdicts" if item.verdicts.renewal_id:
                self._renewed(item.verdicts)
            case "verdicts":
                self._heed(stream, item.verdicts)
            case _:
                pass

    def frame_handled(self, stream: ClientStream) -> None:
        """As the library's stream asks of its handler."""

    def _renewed(self, verdicts: daemon.Verdicts) -> None:
        if self.asked_at is not None:
            self.latencies.append((perf_counter() - self.asked_at) * 1000)
            self.asked_at = None
        self.lost += len(verdicts.verdicts)

    def _heed(self, stream: ClientStream, verdicts: daemon.Verdicts) -> None:
        for verdict in verdicts.verdicts:
            if verdict.state == job_pb2.LEASE_STATE_CANCEL_REQUESTED:
                self.on_cancel()
                ack = daemon.CancelAck(leases=[verdict.lease])
                stream.send(daemon.DaemonItem(cancel_ack=ack), control=True)


async def connect_all(devices: Sequence[ConnectedDevice], address: str) -> None:
    """Connects many devices, some at a time: a connection that waits too long is given up."""
    for group in groups(devices):
        await asyncio.gather(*(device.connect(address) for device in group))


async def close_all(devices: Sequence[ConnectedDevice]) -> None:
    for group in groups(devices):
        await asyncio.gather(*(device.close() for device in group))


def groups(members: Sequence[T], size: int = _AT_ONCE) -> Iterator[list[T]]:
    """The members in their order, so many at a time."""
    rest = iter(members)
    while group := list(islice(rest, size)):
        yield group
