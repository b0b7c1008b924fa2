"""A site that drives jobs over its stream, as bare as may be."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import grpc.aio

from bench.our_relay.errands import Errands
from bench.our_relay.legs import Legs
from bench.our_relay.line import Line
from bench.our_relay.parties import new_job_stub, site_hello, unary_calls
from bench.peer_relay.party import Party
from relay_service.client.calls import GET_RESULT, SEAL_PAYLOAD, Calls
from relay_service.client.connection import Connection
from relay_service.client.site_session import SITE_SESSION
from relay_service.client.wire import identity_from_proto
from sealwork.relay.v1 import site_plane_pb2 as site
from sealwork.session.v1 import session_pb2

# What rides a stream is at most 32 KiB with all that is around it.
INLINE_BYTES = 24_576
# Notices that are taken ahead; topped up when half of them have come, as the client library does.
_NOTICES = 256
_JOB_SECONDS = 20.0


@dataclass(slots=True)
class _Job:
    id: str
    prompt: str
    legs: Legs
    # Whether the right answer has come.
    answered: "asyncio.Future[bool]" = field(repr=False)


class StreamSite:
    """Publishes, seals, opens and settles on one stream; what is too large for it goes by unary call."""

    def __init__(self, party: Party, random: Random) -> None:
        self.party = party
        self._random = random
        self._jobs: dict[str, _Job] = {}
        # Calls that have no answer yet, and the job that each is about.
        self._waiting: dict[int, str] = {}
        self._calls_made = 0
        self._notices = 0
        self._quiet = asyncio.Event()
        self._errands = Errands()
        self._channel: grpc.aio.Channel | None = None
        self._line: Line | None = None
        self._unary: Calls | None = None

    async def connect(self, address: str) -> None:
        connection = Connection(address)
        self._unary = unary_calls(connection, self.party, self._random)
        self._channel = connection.session_channel()
        hello = site_hello(self.party, _NOTICES)
        self._line = await Line.open(self._channel, SITE_SESSION, self.party, hello, self._receive)

    async def run_job(self, owner: str, prompt: str, legs: Legs) -> bool:
        """Takes a job from enqueue to its opened result; whether that is the right answer."""
        job = self._publish(owner, prompt, legs)
        try:
            async with asyncio.timeout(_JOB_SECONDS):
                return await job.answered
        except TimeoutError:
            return False
        finally:
            del self._jobs[job.id]

    def begin_job(self, owner: str, prompt: str, legs: Legs) -> "asyncio.Future[bool]":
        """Publishes a job, and seals it to the device that claims it.

        Returns:
            Whether the right answer has come; nothing ends the wait for one that never comes.
        """
        job = self._publish(owner, prompt, legs)
        job.answered.add_done_callback(lambda _answered: self._jobs.pop(job.id))
        return job.answered

    async def settled(self) -> None:
        """Returns when the relay has answered everything, so that nobody else's burst pays for it."""
        while self._waiting:
            self._quiet.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_JOB_SECONDS):
                    await self._quiet.wait()
                    continue
            self._waiting.clear()

    async def close(self) -> None:
        self._errands.cancel()
        if self._line is not None:
            await self._line.close()
        if self._channel is not None:
            await self._channel.close()
        if self._unary is not None:
            await self._unary.close()

    def _publish(self, owner: str, prompt: str, legs: Legs) -> _Job:
        stub = new_job_stub(owner, self.party, prompt, self._random)
        job = _Job(stub.id, prompt, legs, asyncio.get_running_loop().create_future())
        self._jobs[job.id] = job
        self._call(job.id, enqueue_job=site.EnqueueJobRequest(stub=stub))
        return job

    def _call(self, job_id: str, **request: Any) -> None:
        assert self._line is not None
        self._calls_made += 1
        self._waiting[self._calls_made] = job_id
        self._line.send(site.SiteItem(call=site.SiteCall(id=self._calls_made, **request)))

    def _receive(self, arm: str, item: site.SiteServerItem) -> None:
        if arm == "reply":
            self._answered(item.reply)
        elif arm == "notice":
            self._count_notice()
            job = self._jobs.get(item.notice.job_id)
            if job is not None:
                self._noticed(job, item.notice)

    def _answered(self, reply: site.SiteReply) -> None:
        job = self._jobs.get(self._waiting.pop(reply.id, ""))
        if job is not None and reply.WhichOneof("outcome") == "error":
            _finish(job, right=False)
        if not self._waiting:
            self._quiet.set()

    def _count_notice(self) -> None:
        assert self._line is not None
        self._notices += 1
        if self._notices % (_NOTICES // 2) == 0:
            credit = session_pb2.Credit(limit=self._notices + _NOTICES)
            self._line.send(site.SiteItem(credit=credit))

    def _noticed(self, job: _Job, notice: site.SiteNotice) -> None:
        match notice.WhichOneof("notice"):
            case "please_seal":
                self._seal(job, notice.please_seal)
            case "result_ready" if notice.result_ready.HasField("envelope"):
                self._accept(job, notice.result_ready)
            case "result_ready":
                self._errands.run(self._fetch_result(job), lambda: _finish(job, right=False))
            case _:
                _finish(job, right=False)

    def _seal(self, job: _Job, asked: site.PleaseSeal) -> None:
        envelope = job.legs.payload(job.id, job.prompt, identity_from_proto(asked.device))
        request = site.SealPayloadRequest(job_id=job.id, lease_id=asked.lease_id, envelope=envelope)
        if len(envelope.ciphertext) <= INLINE_BYTES:
            self._call(job.id, seal_payload=request)
        else:
            self._errands.run(self._seal_by_unary(request), lambda: _finish(job, right=False))

    async def _seal_by_unary(self, request: site.SealPayloadRequest) -> None:
        assert self._unary is not None
        await self._unary.call(SEAL_PAYLOAD, request)

    async def _fetch_result(self, job: _Job) -> None:
        assert self._unary is not None
        result = await self._unary.call(GET_RESULT, site.GetResultRequest(job_id=job.id))
        self._accept(job, result)

    def _accept(self, job: _Job, result: site.ResultReady | site.GetResultResponse) -> None:
        _finish(job, right=job.legs.is_right(job.id, job.prompt, result.disposition, result.envelope))
        self._call(job.id, ack_results=site.AckResultsRequest(job_ids=[job.id]))


def _finish(job: _Job, *, right: bool) -> None:
    if not job.answered.done():
        job.answered.set_result(right)
