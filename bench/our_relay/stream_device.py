"""A device that answers jobs over its stream, as bare as may be."""

from random import Random

import grpc.aio

from bench.our_relay.errands import Errands
from bench.our_relay.legs import Legs
from bench.our_relay.line import Line
from bench.our_relay.parties import daemon_hello, unary_calls
from bench.our_relay.stream_site import INLINE_BYTES
from relay_service.client.calls import COMPLETE_JOB, FETCH_PAYLOAD, Calls
from relay_service.client.connection import Connection
from relay_service.client.daemon_session import DAEMON_SESSION
from sealwork.relay.v1 import daemon_plane_pb2 as daemon
from sealwork.relay.v1 import job_pb2
from sealwork.session.v1 import session_pb2

# More than any run has.
MOST_JOBS = 2**31


class StreamDevice:
    """Takes grants, opens, answers and seals on one stream; what is too large for it goes by unary call.

    Args:
        slots: jobs that it has room for from the start.

    Attributes:
        most: jobs that it takes in all; none are offered beyond.
    """

    def __init__(self, legs: Legs, slots: int, random: Random, most: int = MOST_JOBS) -> None:
        self.most = most
        self._legs = legs
        self._random = random
        self._credit = slots
        self._calls_made = 0
        self._errands = Errands()
        self._channel: grpc.aio.Channel | None = None
        self._line: Line | None = None
        self._unary: Calls | None = None

    async def connect(self, address: str) -> None:
        connection = Connection(address)
        party = self._legs.device
        self._unary = unary_calls(connection, party, self._random)
        self._channel = connection.session_channel()
        hello = daemon_hello(party, self._credit)
        self._line = await Line.open(self._channel, DAEMON_SESSION, party, hello, self._receive)

    async def close(self) -> None:
        self._errands.cancel()
        if self._line is not None:
            await self._line.close()
        if self._channel is not None:
            await self._channel.close()
        if self._unary is not None:
            await self._unary.close()

    def _receive(self, arm: str, item: daemon.DaemonServerItem) -> None:
        if arm == "granted":
            lease = job_pb2.LeaseRef(job_id=item.granted.stub.id, lease_id=item.granted.lease.id)
            self._send(daemon.DaemonItem(grant_ack=daemon.GrantAck(leases=[lease])))
        elif arm == "payload_ready" and item.payload_ready.HasField("envelope"):
            self._complete(self._result(item.payload_ready.lease, item.payload_ready.envelope))
        elif arm == "payload_ready":
            # What fails here the site hears nothing of, and counts as failed when its time is up.
            self._errands.run(self._fetch_and_complete(item.payload_ready.lease))

    def _result(self, lease: job_pb2.LeaseRef, payload: job_pb2.SealedEnvelope) -> daemon.CompleteJobRequest:
        answer = self._legs.answer(lease.job_id, payload)
        return daemon.CompleteJobRequest(lease=lease, envelope=answer, disposition=job_pb2.DISPOSITION_OK)

    def _complete(self, request: daemon.CompleteJobRequest) -> None:
        if len(request.envelope.ciphertext) > INLINE_BYTES:
            self._errands.run(self._complete_by_unary(request))
            return
        self._calls_made += 1
        self._send(daemon.DaemonItem(call=daemon.DaemonCall(id=self._calls_made, complete_job=request)))
        self.offer()

    async def _fetch_and_complete(self, lease: job_pb2.LeaseRef) -> None:
        assert self._unary is not None
        fetched = await self._unary.call(FETCH_PAYLOAD, daemon.FetchPayloadRequest(lease=lease))
        self._complete(self._result(lease, fetched.envelope))

    async def _complete_by_unary(self, request: daemon.CompleteJobRequest) -> None:
        assert self._unary is not None
        await self._unary.call(COMPLETE_JOB, request)
        self.offer()

    def offer(self, slots: int = 1) -> None:
        """Lets the relay grant so many jobs more, as a device does that has room for them."""
        if self._credit >= self.most:
            return
        self._credit = min(self._credit + slots, self.most)
        self._send(daemon.DaemonItem(credit=session_pb2.Credit(limit=self._credit)))

    def _send(self, item: daemon.DaemonItem) -> None:
        assert self._line is not None
        self._line.send(item)
