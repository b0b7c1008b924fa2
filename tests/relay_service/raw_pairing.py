"""New devices that speak in raw messages, and a control plane that only adds devices."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import grpc.aio

from relay_service.client.keys import Keys
from relay_service.core.identity import PublicIdentity, encode_base64url
from relay_service.core.projection import ProjectedDevice
from relay_service.projection import ProjectionSource
from sealwork.relay.v1 import daemon_plane_pb2_grpc, job_pb2, pairing_pb2
from tests.relay_service.raw_client import Refusal
from tests.relay_service.relay_fixture import keys_of, timestamp

PROTOCOL = (("sealwork-protocol", "1"),)
PENDING = pairing_pb2.PAIRING_STATE_PENDING
APPROVED = pairing_pb2.PAIRING_STATE_APPROVED
DENIED = pairing_pb2.PAIRING_STATE_DENIED
EXPIRED = pairing_pb2.PAIRING_STATE_EXPIRED

_NONCES = count(1)


def public_message(keys: Keys) -> job_pb2.PublicIdentity:
    public = keys.public
    return job_pb2.PublicIdentity(
        identity=public.identity,
        encryption=public.encryption,
        encryption_signature=public.encryption_signature,
    )


class NewDevice:
    """A device that nobody knows yet."""

    def __init__(self, channel: Any, now_ms: Callable[[], int], keys: Keys | None = None) -> None:
        self.keys = keys or keys_of("new device")
        self._now_ms = now_ms
        self._stub: Any = daemon_plane_pb2_grpc.DaemonPlaneServiceStub(channel)

    def introduction(self, **fields: Any) -> pairing_pb2.StartPairingRequest:
        """A request that is in order, unless told otherwise."""
        given: dict[str, Any] = {
            "client_version": "1.4.0",
            "label": "Alice's desk",
            "platform": pairing_pb2.PLATFORM_LINUX,
            "device": public_message(self.keys),
            "proof": self.proof(),
        }
        return pairing_pb2.StartPairingRequest(**(given | fields))

    def proof(self, issued_at_ms: int | None = None, nonce: bytes = b"") -> pairing_pb2.PairingProof:
        at_ms = self._now_ms() if issued_at_ms is None else issued_at_ms
        nonce = nonce or next(_NONCES).to_bytes(16)
        lines = (
            "sealwork/v1/pairing",
            "/sealwork.relay.v1.DaemonPlaneService/StartPairing",
            encode_base64url(self.keys.public.identity),
            str(at_ms),
            encode_base64url(nonce),
        )
        signature = self.keys.signer.sign("\n".join(lines).encode())
        return pairing_pb2.PairingProof(issue_time=timestamp(at_ms), nonce=nonce, signature=signature)

    def code(self, device_code: str) -> dict[str, Any]:
        """The fields that ask for a pairing."""
        signature = self.keys.signer.sign(f"sealwork/v1/pairing-code\n{device_code}".encode())
        return {"device_code": device_code, "signature": signature}

    async def start(self, **fields: Any) -> pairing_pb2.StartPairingResponse:
        request = self.introduction(**fields)
        return await self._stub.StartPairing(request, metadata=PROTOCOL, timeout=10)  # type: ignore[no-any-return]

    async def poll(self, device_code: str, **fields: Any) -> pairing_pb2.PollPairingResponse:
        request = pairing_pb2.PollPairingRequest(**(self.code(device_code) | fields))
        return await self._stub.PollPairing(request, metadata=PROTOCOL, timeout=10)  # type: ignore[no-any-return]

    def watch(self, device_code: str, **fields: Any) -> "Watch":
        request = pairing_pb2.WatchPairingRequest(**(self.code(device_code) | fields))
        return Watch(self._stub.WatchPairing(request, metadata=PROTOCOL, timeout=60))


class Watch:
    """One call of WatchPairing."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def next(self) -> pairing_pb2.WatchPairingResponse:
        """The next answer, which has to come."""
        async with asyncio.timeout(10):
            answer = await self.call.read()
        assert answer is not grpc.aio.EOF, "the call ended"
        return answer  # type: ignore[no-any-return]

    async def ends_with(self) -> pairing_pb2.WatchPairingResponse:
        """The last answer of a call that ends in order, at once."""
        last = None
        async with asyncio.timeout(10):
            while (answer := await self.call.read()) is not grpc.aio.EOF:
                last = answer
            assert await self.call.code() is grpc.StatusCode.OK
        assert last is not None
        return last  # type: ignore[no-any-return]

    async def refused(self) -> Refusal:
        async with asyncio.timeout(10):
            try:
                while await self.call.read() is not grpc.aio.EOF:
                    pass
            except grpc.aio.AioRpcError:
                pass
            return Refusal.of_call(await self.call.code(), await self.call.trailing_metadata())


async def refusal_of(call: Any) -> Refusal:
    """A call whose refusal has to come."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return Refusal.of_call(error.code(), error.trailing_metadata())
    raise AssertionError("it was answered")


@dataclass
class Registrar:
    """Adds devices to a projection, each key once; what a control plane does for the desk."""

    source: ProjectionSource

    async def register(self, owner: str, identity: PublicIdentity, label: str, actor: str) -> str:
        devices = self.source.current.devices
        for device in devices:
            if device.identity.identity == identity.identity:
                assert device.owner == owner
                return device.runner_id
        made = ProjectedDevice(owner, f"paired-{len(devices) + 1}", identity)
        self.source.replace(replace(self.source.current, devices=(*devices, made)))
        return made.runner_id
