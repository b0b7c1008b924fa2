"""A real server on a loopback port, for tests of what surrounds a servicer."""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.wrappers_pb2 import StringValue
from google.rpc import error_details_pb2, status_pb2
from nacl.signing import SigningKey

from service_common.call_interceptor import CallInterceptor
from service_common.call_metrics import CallMetrics
from service_common.clocks import Clock, ManualClock, SystemClock
from service_common.errors import ServiceError
from service_common.listeners import Listener, bind
from service_common.method_table import MethodTable, ServicePolicy
from service_common.metrics import Metrics
from service_common.nonces import MemoryNonceLedger
from service_common.request_verifier import RequestVerifier
from service_common.server import build_server

SERVICE = "sealwork.test.v1.EchoService"
NOW_MS = 1_700_000_000_000
KEY = SigningKey(bytes(range(32)))
OTHER_KEY = SigningKey(bytes(range(1, 33)))
NONCE = "AAECAwQFBgcICQoLDA0ODw"
PROTOCOL = (("sealwork-protocol", "1"),)


def method(name: str) -> str:
    return f"/{SERVICE}/{name}"


def unary(behaviour: Any) -> "grpc.RpcMethodHandler[Any, Any]":
    return grpc.unary_unary_rpc_method_handler(
        behaviour, StringValue.FromString, StringValue.SerializeToString
    )


def server_stream(behaviour: Any) -> "grpc.RpcMethodHandler[Any, Any]":
    return grpc.unary_stream_rpc_method_handler(
        behaviour, StringValue.FromString, StringValue.SerializeToString
    )


def client_stream(behaviour: Any) -> "grpc.RpcMethodHandler[Any, Any]":
    return grpc.stream_unary_rpc_method_handler(
        behaviour, StringValue.FromString, StringValue.SerializeToString
    )


def bidi(behaviour: Any) -> "grpc.RpcMethodHandler[Any, Any]":
    return grpc.stream_stream_rpc_method_handler(
        behaviour, StringValue.FromString, StringValue.SerializeToString
    )


def base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(
    full_method: str,
    body: bytes,
    *,
    caller: str = "device-1",
    issued_at_ms: int = NOW_MS,
    nonce: str = NONCE,
    key: SigningKey = KEY,
) -> tuple[tuple[str, str], ...]:
    """Sign as the protocol says, written out here once more and not by the code under test."""
    lines = (
        "sealwork/v1/request",
        full_method,
        caller,
        str(issued_at_ms),
        nonce,
        hashlib.sha256(body).hexdigest(),
    )
    signature = key.sign("\n".join(lines).encode()).signature
    return (
        ("sealwork-protocol", "1"),
        ("sealwork-caller", caller),
        ("sealwork-issued-at", str(issued_at_ms)),
        ("sealwork-nonce", nonce),
        ("sealwork-signature", base64url(signature)),
    )


class Directory:
    """Callers with fixed keys."""

    def __init__(self, keys: Mapping[str, tuple[bytes, ...]] | None = None) -> None:
        self.keys = dict(keys or {"device-1": (KEY.verify_key.encode(),)})
        self.refusals: dict[str, ServiceError] = {}

    def keys_for(self, method: str, caller: str) -> tuple[bytes, ...] | None:
        return self.keys.get(caller)

    def refusal_for(self, method: str, caller: str) -> ServiceError | None:
        return self.refusals.get(caller)


@dataclass
class Loopback:
    """A running server and a channel to it."""

    channel: Any
    metrics: Metrics
    directory: Directory
    clock: Clock
    target: str

    async def call(
        self, name: str, body: bytes = b"", metadata: Any = PROTOCOL, timeout: float | None = 10
    ) -> bytes:
        answer: bytes = await self.channel.unary_unary(method(name))(body, metadata=metadata, timeout=timeout)
        return answer

    async def refusal(self, name: str, body: bytes = b"", metadata: Any = PROTOCOL) -> "Refusal":
        """Call and return the refusal, which has to come."""
        try:
            await self.call(name, body, metadata)
        except grpc.aio.AioRpcError as error:
            return Refusal.of(error)
        raise AssertionError("the call was answered")


@dataclass
class Refusal:
    """A failed call as its caller sees it."""

    code: grpc.StatusCode
    text: str
    infos: list[error_details_pb2.ErrorInfo]
    status: status_pb2.Status
    everything: bytes

    @classmethod
    def of(cls, error: grpc.aio.AioRpcError) -> "Refusal":
        trailers = dict(error.trailing_metadata())
        raw = trailers["grpc-status-details-bin"]
        assert isinstance(raw, bytes)
        status = status_pb2.Status.FromString(raw)
        infos = []
        for detail in status.details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info):
                infos.append(info)
        text = error.details() or ""
        return cls(error.code(), text, infos, status, text.encode() + repr(trailers).encode() + raw)

    @property
    def reason(self) -> str:
        (info,) = self.infos
        return str(info.reason)


@asynccontextmanager
async def serving(
    handlers: "dict[str, grpc.RpcMethodHandler[Any, Any]]",
    *,
    opened: tuple[str, ...] | None = None,
    challenged: tuple[str, ...] = (),
    uploads: tuple[str, ...] = (),
    clock: Clock | None = None,
    manual: bool = False,
    listed: bool = True,
) -> AsyncIterator[Loopback]:
    """Serve the handlers, of a service that the table lists or not.

    All methods are open to everybody unless `opened` names those that are.
    """
    clock = clock or (ManualClock(NOW_MS) if manual else SystemClock())
    directory = Directory()
    verifier = RequestVerifier(directory, MemoryNonceLedger(clock), clock)
    table = MethodTable(
        services={SERVICE: ServicePolicy("test.sealwork.dev", verifier)} if listed else {},
        unauthenticated=frozenset(method(name) for name in (handlers if opened is None else opened)),
        challenged=frozenset(method(name) for name in challenged),
        uploads=frozenset(method(name) for name in uploads),
    )
    metrics = Metrics()
    server = build_server(CallInterceptor(table, CallMetrics(metrics), clock))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = bind(server, Listener("127.0.0.1:0"))
    await server.start()
    target = f"127.0.0.1:{port}"
    try:
        async with grpc.aio.insecure_channel(target) as channel:
            yield Loopback(channel, metrics, directory, clock, target)
    finally:
        await server.stop(None)
