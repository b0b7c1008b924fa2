"""What a site's stream carries, read along: every byte, and when each beat of a job came."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import grpc.aio

from relay_service.client.connection import Connection
from sealwork.relay.v1 import job_pb2, site_plane_pb2


def now_ms() -> float:
    """The wall clock in milliseconds: all processes of this machine read the same one."""
    return time.time() * 1000


@dataclass(frozen=True)
class Beat:
    """Something that happened to a job.

    Attributes:
        name: enqueued (the relay has said so), please-seal, sealed (and sent), result, requeued, ended.
        at_ms: When it passed by here.
        runner_id: The device that it is about.
        envelope: The envelope that it carried.
    """

    name: str
    at_ms: float
    runner_id: str = ""
    lease_id: str = ""
    envelope: job_pb2.SealedEnvelope | None = field(default=None, repr=False)


class Tap:
    """Listens to one site's stream.

    Attributes:
        sent: Every byte that the site sent to the relay.
        received: Every byte that it got.
    """

    def __init__(self) -> None:
        self.sent = bytearray()
        self.received = bytearray()
        self._beats: dict[str, list[Beat]] = {}
        self._enqueued: dict[int, str] = {}
        self._news = asyncio.Event()

    def beats(self, job_id: str, name: str) -> list[Beat]:
        """All beats of a job by that name, in order."""
        return [beat for beat in self._beats.get(job_id, ()) if beat.name == name]

    async def beat(self, job_id: str, name: str, number: int = 1) -> Beat:
        """Return a beat of a job once it has happened, the first of that name by default."""
        while len(found := self.beats(job_id, name)) < number:
            self._news.clear()
            await self._news.wait()
        return found[number - 1]

    def hear_sent(self, data: bytes) -> None:
        at_ms = now_ms()
        self.sent += data
        for item in site_plane_pb2.SitePlaneServiceSessionRequest.FromString(data).items:
            if item.HasField("call"):
                self._hear_call(item.call, at_ms)
        self._news.set()

    def hear_received(self, data: bytes) -> None:
        at_ms = now_ms()
        self.received += data
        for item in site_plane_pb2.SitePlaneServiceSessionResponse.FromString(data).items:
            if item.HasField("reply"):
                self._hear_reply(item.reply, at_ms)
            elif item.HasField("notice"):
                self._hear_notice(item.notice, at_ms)
        self._news.set()

    def _hear_call(self, call: site_plane_pb2.SiteCall, at_ms: float) -> None:
        if call.HasField("enqueue_job"):
            self._enqueued[call.id] = call.enqueue_job.stub.id
        elif call.HasField("seal_payload"):
            sealed = call.seal_payload
            beat = Beat("sealed", at_ms, lease_id=sealed.lease_id, envelope=sealed.envelope)
            self._note(sealed.job_id, beat)

    def _hear_reply(self, reply: site_plane_pb2.SiteReply, at_ms: float) -> None:
        job_id = self._enqueued.pop(reply.id, None)
        if job_id is not None and reply.HasField("enqueue_job"):
            self._note(job_id, Beat("enqueued", at_ms))

    def _hear_notice(self, notice: site_plane_pb2.SiteNotice, at_ms: float) -> None:
        match notice.WhichOneof("notice"):
            case "please_seal":
                seal = notice.please_seal
                beat = Beat("please-seal", at_ms, runner_id=seal.runner_id, lease_id=seal.lease_id)
            case "result_ready":
                ready = notice.result_ready
                beat = Beat("result", at_ms, ready.runner_id, ready.lease_id, ready.envelope)
            case "job_requeued":
                beat = Beat("requeued", at_ms)
            case _:
                beat = Beat("ended", at_ms)
        self._note(notice.job_id, beat)

    def _note(self, job_id: str, beat: Beat) -> None:
        self._beats.setdefault(job_id, []).append(beat)


@dataclass(frozen=True)
class TappedConnection(Connection):
    """A connection whose stream is listened to."""

    tap: Tap = field(kw_only=True)

    def session_channel(self) -> grpc.aio.Channel:
        channel = Connection.session_channel(self)
        # The client makes nothing but streams on this channel, and closes it.
        return cast("grpc.aio.Channel", _TappedChannel(channel, self.tap))


class _TappedChannel:
    def __init__(self, channel: grpc.aio.Channel, tap: Tap) -> None:
        self._channel = channel
        self._tap = tap

    def stream_stream(
        self, method: str, serializer: Callable[[Any], bytes], deserializer: Callable[[bytes], Any]
    ) -> "grpc.aio.StreamStreamMultiCallable[Any, Any]":
        def serialize(frame: Any) -> bytes:
            data = serializer(frame)
            self._tap.hear_sent(data)
            return data

        def deserialize(data: bytes) -> Any:
            self._tap.hear_received(data)
            return deserializer(data)

        return self._channel.stream_stream(method, serialize, deserialize)

    async def close(self) -> None:
        await self._channel.close()
