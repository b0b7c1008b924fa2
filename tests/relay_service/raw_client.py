"""Clients of the relay that speak in raw frames: what a test says is what goes over the wire.

They keep no state of their own, retry nothing and answer nothing by themselves. Frames are read in the
background, because a read of grpc.aio that is given up ends its whole call.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import grpc
import grpc.aio
from google.protobuf import message_factory
from google.rpc import error_details_pb2, status_pb2

from relay_service.client.keys import Keys
from sealwork.relay.v1 import admin_pb2, control_plane_pb2, daemon_plane_pb2, job_pb2, site_plane_pb2
from sealwork.session.v1 import session_pb2
from service_common.signing import request_metadata, sign_session
from tests.harness.waiting import eventually

DOMAIN = "relay.sealwork.dev"
_FILES = {
    "DaemonPlaneService": daemon_plane_pb2,
    "SitePlaneService": site_plane_pb2,
    "ControlPlaneService": control_plane_pb2,
    "RelayAdminService": admin_pb2,
}
KIND = "llm.generate"


@dataclass(frozen=True)
class Refusal:
    """A status as its receiver sees it; one without exactly one ErrorInfo is not made."""

    code: grpc.StatusCode
    reason: str
    domain: str
    message: str
    metadata: tuple[tuple[str, str], ...]
    fields: tuple[str, ...]
    retry_after_ms: int | None

    @classmethod
    def of_status(cls, status: status_pb2.Status) -> Self:
        infos, fields, retry = [], [], None
        for detail in status.details:
            info, bad, wait = (
                error_details_pb2.ErrorInfo(),
                error_details_pb2.BadRequest(),
                error_details_pb2.RetryInfo(),
            )
            if detail.Unpack(info):
                infos.append(info)
            if detail.Unpack(bad):
                fields += [violation.field for violation in bad.field_violations]
            if detail.Unpack(wait):
                retry = wait.retry_delay.ToMilliseconds()
        (info,) = infos
        codes = {code.value[0]: code for code in grpc.StatusCode}
        metadata = tuple(sorted(info.metadata.items()))
        return cls(
            codes[status.code], info.reason, info.domain, status.message, metadata, tuple(fields), retry
        )

    @classmethod
    def of_call(cls, code: grpc.StatusCode, trailers: Any) -> Self:
        raw = dict(trailers or ()).get("grpc-status-details-bin")
        assert isinstance(raw, bytes), f"{code} came without details: {trailers}"
        refusal = cls.of_status(status_pb2.Status.FromString(raw))
        assert refusal.code is code
        return refusal


def method_of(service: str, name: str) -> str:
    return f"/sealwork.relay.v1.{service}/{name}"


def message_type(service: str, name: str, *, answer: bool = False) -> Any:
    """The class of a method's request or answer."""
    method = _FILES[service].DESCRIPTOR.services_by_name[service].methods_by_name[name]
    return message_factory.GetMessageClass(method.output_type if answer else method.input_type)


class RawStream:
    """One call of `Session`.

    Attributes:
        items: what came and was not taken yet.
        frames: every frame that came.
        seq: of the frame that was sent last.
    """

    def __init__(
        self, channel: Any, service: str, *, reading: bool = True, timeout: float | None = None
    ) -> None:
        self._answer = message_type(service, "Session", answer=True)
        self._frame = message_type(service, "Session")
        self._item = daemon_plane_pb2.DaemonItem if "Daemon" in service else site_plane_pb2.SiteItem
        # Frames are bytes here, so that a test can send what is no frame at all.
        open_ = channel.stream_stream(method_of(service, "Session"))
        self.call: Any = open_(timeout=timeout)
        self.items: list[Any] = []
        self.frames: list[Any] = []
        self.seq = 0
        self._pings = 0
        self._closed = False
        self._news = asyncio.Condition()
        self._reader = asyncio.create_task(self._read_all()) if reading else None

    async def next(self, arm: str, timeout: float = 15.0) -> Any:
        """Takes the next item with that arm and returns what it holds; other items stay."""

        def take() -> Any:
            for place, item in enumerate(self.items):
                if item.WhichOneof("item") == arm:
                    return self.items.pop(place)
            assert not self._closed, f"the stream ended before {arm}"
            return None

        item = await eventually(take, timeout, lambda: f"{arm}; others: {self.items}", notify=self._news)
        return getattr(item, arm)

    def take(self, arm: str) -> list[Any]:
        """Takes all items with that arm that have come."""
        found = [getattr(item, arm) for item in self.items if item.WhichOneof("item") == arm]
        self.items = [item for item in self.items if item.WhichOneof("item") != arm]
        return found

    async def send(self, **arms: Any) -> int:
        """Sends one frame with these items, in order, and returns its seq."""
        return await self.send_items(*(self.item(**{name: value}) for name, value in arms.items()))

    async def send_items(self, *items: Any) -> int:
        self.seq += 1
        await self.send_bytes(self._frame(seq=self.seq, items=items).SerializeToString())
        return self.seq

    async def send_bytes(self, frame: bytes) -> None:
        await self.call.write(frame)

    def item(self, **arm: Any) -> Any:
        return self._item(**arm)

    async def settle(self) -> None:
        """Returns when everything that was on its way before has come and been handled."""
        for _ in range(2):
            self._pings += 1
            await self.send(heartbeat=session_pb2.Heartbeat(ping_id=self._pings))
            while (await self.next("heartbeat")).pong_id != self._pings:
                pass

    async def end(self, timeout: float = 15.0) -> Refusal | None:
        """Waits for the end; None when it was OK."""
        if self._reader is None:
            self._reader = asyncio.create_task(self._read_all())
        async with asyncio.timeout(timeout):
            await self._reader
            code = await self.call.code()
            return (
                None
                if code is grpc.StatusCode.OK
                else Refusal.of_call(code, await self.call.trailing_metadata())
            )

    async def code(self, timeout: float = 15.0) -> grpc.StatusCode:
        """Waits for the end of a call that gRPC itself ended, and returns its code."""
        async with asyncio.timeout(timeout):
            if self._reader is not None:
                await self._reader
            code: grpc.StatusCode = await self.call.code()
            return code

    @property
    def closed(self) -> bool:
        return self._closed

    async def _read_all(self) -> None:
        try:
            while (raw := await self.call.read()) is not grpc.aio.EOF:
                frame = self._answer.FromString(raw)
                async with self._news:
                    self.frames.append(frame)
                    self.items.extend(frame.items)
                    self._news.notify_all()
        except grpc.aio.AioRpcError:
            pass
        except asyncio.CancelledError:
            # The call was cancelled by the test; only a cancelled reader may say so.
            if not self.call.cancelled():
                raise
        finally:
            self._closed = True


class RawParty:
    """A device, a site or an operator: a name, keys, and one channel.

    Args:
        now_ms: the clock that requests are stamped by.
    """

    service = ""

    def __init__(self, channel: Any, caller: str, keys: Keys, now_ms: Callable[[], int]) -> None:
        self.channel = channel
        self.caller = caller
        self.keys = keys
        self.now_ms = now_ms

    # -- unary calls --------------------------------------------------------------------

    async def call(self, name: str, request: Any, *, timeout: float = 10.0) -> Any:
        """A signed call; `request` may be bytes that are no message."""
        body = request if isinstance(request, bytes) else request.SerializeToString()
        answer = await self.call_bytes(name, body, self.signed(name, body), timeout=timeout)
        return message_type(self.service, name, answer=True).FromString(answer)

    async def refused(self, name: str, request: Any, metadata: Any = None) -> Refusal:
        """A call whose refusal has to come."""
        body = request if isinstance(request, bytes) else request.SerializeToString()
        try:
            await self.call_bytes(name, body, self.signed(name, body) if metadata is None else metadata)
        except grpc.aio.AioRpcError as error:
            return Refusal.of_call(error.code(), error.trailing_metadata())
        raise AssertionError(f"{name} was answered")

    async def call_bytes(self, name: str, body: bytes, metadata: Any, *, timeout: float = 10.0) -> bytes:
        method = self.channel.unary_unary(method_of(self.service, name))
        answer: bytes = await method(body, metadata=metadata, timeout=timeout)
        return answer

    def signed(self, name: str, body: bytes) -> tuple[tuple[str, str], ...]:
        return request_metadata(
            self.keys.signer, self.caller, method_of(self.service, name), body, self.now_ms()
        )

    # -- the stream ---------------------------------------------------------------------

    def hello(self, **fields: Any) -> Any:
        raise NotImplementedError

    def open(self, *, reading: bool = True, timeout: float | None = None) -> RawStream:
        """A stream on which nothing was said."""
        return RawStream(self.channel, self.service, reading=reading, timeout=timeout)

    async def greet(self, stream: RawStream, **fields: Any) -> None:
        """Waits for the challenge and says hello."""
        challenge = await stream.next("challenge")
        await stream.send(hello=self.sign(self.hello(**fields).SerializeToString(), challenge.nonce))

    def sign(self, hello: bytes, nonce: bytes, *, method: str = "Session") -> session_pb2.SignedHello:
        name = method_of(self.service, method)
        signature = sign_session(self.keys.signer, name, self.caller, nonce, hello)
        return session_pb2.SignedHello(hello=hello, signature=signature)

    async def connect(self, *, timeout: float | None = None, **fields: Any) -> RawStream:
        """A stream that was welcomed."""
        stream = self.open(timeout=timeout)
        await self.greet(stream, **fields)
        await stream.next("welcome")
        return stream


def row(kind: str = KIND) -> job_pb2.DeviceCapability:
    """One row of a matrix."""
    return job_pb2.DeviceCapability(
        kind=kind,
        service="local",
        backend_id="llamacpp",
        backend_class=job_pb2.BACKEND_CLASS_HTTP,
        model="small",
        offer_scope=job_pb2.AUDIENCE_TEAM,
    )


class RawDaemon(RawParty):
    """A device."""

    service = "DaemonPlaneService"

    def hello(self, **fields: Any) -> daemon_plane_pb2.DaemonHello:
        """A hello with credit for one grant and nothing held, unless told otherwise."""
        credit = session_pb2.Credit(limit=fields.pop("limit", 1))
        given: dict[str, Any] = {
            "runner_id": self.caller,
            "process_id": "process-1",
            "client_name": "raw",
            "client_version": "0.1.0",
            "protocol_version": 1,
            "matrix": [row()],
            "credit": credit,
        }
        return daemon_plane_pb2.DaemonHello(**(given | fields))


class RawSite(RawParty):
    """A site."""

    service = "SitePlaneService"

    def hello(self, **fields: Any) -> site_plane_pb2.SiteHello:
        """A hello with credit for a hundred notices, unless told otherwise."""
        credit = session_pb2.Credit(limit=fields.pop("limit", 100))
        given: dict[str, Any] = {
            "site_id": self.caller,
            "process_id": "process-1",
            "client_name": "raw",
            "client_version": "0.1.0",
            "protocol_version": 1,
            "credit": credit,
        }
        return site_plane_pb2.SiteHello(**(given | fields))


class RawOperator(RawParty):
    """The operator, on the admin plane."""

    service = "RelayAdminService"
