"""A site against a relay that the test plays by hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from relay_service.client import Site
from relay_service.client.envelope import open_envelope, seal
from relay_service.client.keys import Keys
from relay_service.client.outcomes import OkOutcome, Outcome, RunMetadata, dump_outcome
from relay_service.client.wire import DISPOSITIONS, envelope_from_proto, envelope_to_proto, identity_to_proto
from sealwork.relay.v1 import job_pb2, site_plane_pb2
from service_common.clocks import SystemClock
from tests.relay_service.client.real_relay import DEVICE_KEYS, SITE_KEYS
from tests.service_common.scripted_server import (
    Plane,
    ScriptedServer,
    ScriptedStream,
    duration,
    scripted_server,
)

PLANE = Plane(
    "sealwork.relay.v1.SitePlaneService",
    site_plane_pb2.SitePlaneServiceSessionRequest,
    site_plane_pb2.SitePlaneServiceSessionResponse,
    site_plane_pb2.SiteServerItem,
    site_plane_pb2.SiteHello,
)
SERVICE = "/sealwork.relay.v1.SitePlaneService/"
FAR_MS = 4_000_000_000_000


@dataclass
class PlayedRelay:
    """A site that is connected, and the relay's end of its stream."""

    server: ScriptedServer
    stream: ScriptedStream
    site: Site
    hello: site_plane_pb2.SiteHello
    calls: int = 0

    async def call(self) -> site_plane_pb2.SiteCall:
        """The next call of the site."""
        call: site_plane_pb2.SiteCall = await self.stream.next_item("call", after=self.calls)
        self.calls += 1
        return call

    async def reply(self, call: site_plane_pb2.SiteCall, **outcome: Any) -> None:
        await self.stream.send(
            site_plane_pb2.SiteServerItem(reply=site_plane_pb2.SiteReply(id=call.id, **outcome))
        )

    async def notify(self, notice_id: str, job_id: str, **what: Any) -> None:
        notice = site_plane_pb2.SiteNotice(notice_id=notice_id, job_id=job_id, **what)
        await self.stream.send(site_plane_pb2.SiteServerItem(notice=notice))

    async def publish(self, payload: Any, **options: Any) -> Any:
        """Enqueues and answers that; returns the handle."""
        enqueueing = asyncio.ensure_future(self.site.enqueue(payload, **{"owner": "alice", **options}))
        call = await self.call()
        answer = site_plane_pb2.EnqueueJobResponse(
            job_id=call.enqueue_job.stub.id, state=job_pb2.JOB_STATE_QUEUED, created=True
        )
        await self.reply(call, enqueue_job=answer)
        return await enqueueing

    async def sealed(self) -> site_plane_pb2.SealPayloadRequest:
        """The next call, which has to be a payload; answers it."""
        call = await self.call()
        assert call.WhichOneof("request") == "seal_payload"
        await self.reply(call, seal_payload=site_plane_pb2.SealPayloadResponse(state=job_pb2.JOB_STATE_READY))
        return call.seal_payload


@asynccontextmanager
async def played_relay(**options: Any) -> AsyncIterator[PlayedRelay]:
    async with scripted_server(PLANE) as server:
        site = Site(server.address, site_id="shop", keys=SITE_KEYS, random=Random(1), **options)
        opening = asyncio.ensure_future(site.__aenter__())
        stream = await server.stream()
        hello = await stream.welcome()
        await opening
        try:
            yield PlayedRelay(server, stream, site, hello)
        finally:
            for each in server.streams:
                each.over.set()
            await site.close()


def please_seal(keys: Keys = DEVICE_KEYS, *, lease: str = "l-1", **changes: Any) -> site_plane_pb2.PleaseSeal:
    notice = site_plane_pb2.PleaseSeal(
        lease_id=lease,
        runner_id="desk",
        device=identity_to_proto(keys.public),
        seal_within=duration(10),
    )
    notice.MergeFrom(site_plane_pb2.PleaseSeal(**changes))
    return notice


def result_ready(
    job_id: str,
    outcome: Outcome | None = None,
    *,
    lease: str = "l-1",
    keys: Keys = DEVICE_KEYS,
    signed_by: Keys | None = None,
    deadline_at_ms: int = FAR_MS,
    sealed_for: str | None = None,
) -> site_plane_pb2.ResultReady:
    """A result as a device would have made it."""
    said = outcome or OkOutcome("an answer")
    ran = RunMetadata("small", "http", 12, "end" if said.disposition == "ok" else None)
    envelope = seal(
        keys=signed_by or keys,
        recipient=SITE_KEYS.public,
        job_id=job_id if sealed_for is None else sealed_for,
        direction="result",
        plaintext=dump_outcome(said, ran),
        deadline_at_ms=deadline_at_ms,
    )
    return site_plane_pb2.ResultReady(
        lease_id=lease,
        disposition=DISPOSITIONS[said.disposition],
        size_bytes=len(envelope.ciphertext),
        runner_id="desk",
        device=identity_to_proto(keys.public),
        runner_owner="alice",
        envelope=envelope_to_proto(envelope),
    )


def opened_payload(request: site_plane_pb2.SealPayloadRequest, keys: Keys = DEVICE_KEYS) -> str:
    """What a device finds in a payload."""
    envelope = envelope_from_proto(request.envelope)
    assert envelope is not None
    return open_envelope(
        envelope,
        keys=keys,
        sender=SITE_KEYS.public,
        job_id=request.job_id,
        direction="payload",
        now_ms=SystemClock().now_ms(),
    )
