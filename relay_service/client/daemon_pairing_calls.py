"""The three pairing calls, each proved by the device's key."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

import grpc
import grpc.aio

from relay_service.client.calls import relay_error
from relay_service.client.connection import Connection
from relay_service.client.errors import RelayError
from relay_service.client.keys import Keys
from relay_service.client.software import client_version
from relay_service.client.wire import identity_to_proto, timestamp_of
from relay_service.core.pairing import code_statement, start_statement
from sealwork.relay.v1 import daemon_plane_pb2_grpc, pairing_pb2
from service_common.clocks import Clock
from service_common.errors import ServiceError

_METADATA: Final = (("sealwork-protocol", "1"),)
_CALL_SECONDS: Final = 10.0
_NONCE_BYTES: Final = 16
# The relay answers a watch at once. What holds that back holds back everything after it as well.
_FIRST_SECONDS: Final = 5.0
# A sign of life comes every 15 s; three may be lost.
_SILENCE_SECONDS: Final = 45.0

# What the relay says with one of these it says again. Without a reason it came from something on the way.
_FINAL_CODES: Final = frozenset(
    {
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
_FINAL_WITHOUT_REASON: Final = frozenset({grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED})
# A start that was lost on its way back; each attempt draws a nonce of its own.
_REPEATED_REASONS: Final = frozenset({"REPLAYED"})


class PairingCalls:
    """Makes the calls of one device, each once."""

    def __init__(
        self, connection: Connection, keys: Keys, clock: Clock, random_bytes: Callable[[int], bytes]
    ) -> None:
        self._keys = keys
        self._clock = clock
        self._random_bytes = random_bytes
        self._channel = connection.calls_channel()
        self._stub: Any = daemon_plane_pb2_grpc.DaemonPlaneServiceStub(self._channel)

    async def start(
        self, label: str, platform: pairing_pb2.Platform.ValueType
    ) -> pairing_pb2.StartPairingResponse:
        """Asks for a code.

        Raises:
            RelayError: It was refused, or not answered.
        """
        request = pairing_pb2.StartPairingRequest(
            client_version=client_version(),
            label=label,
            platform=platform,
            device=identity_to_proto(self._keys.public),
            proof=self._proof(),
        )
        call = self._stub.StartPairing(request, metadata=_METADATA, timeout=_CALL_SECONDS)
        answer: pairing_pb2.StartPairingResponse = await self._answer(call)
        return answer

    async def poll(self, device_code: str) -> pairing_pb2.PollPairingResponse:
        """Asks how the pairing stands.

        Raises:
            RelayError: It was refused, or not answered.
        """
        request = pairing_pb2.PollPairingRequest(device_code=device_code, signature=self._sign(device_code))
        call = self._stub.PollPairing(request, metadata=_METADATA, timeout=_CALL_SECONDS)
        answer: pairing_pb2.PollPairingResponse = await self._answer(call)
        return answer

    async def watch(self, device_code: str) -> AsyncGenerator[pairing_pb2.WatchPairingResponse, None]:
        """How the pairing stands, again and again; ends when the relay ends the stream.

        Raises:
            RelayError: It was refused, lost, or silent for too long.
        """
        request = pairing_pb2.WatchPairingRequest(device_code=device_code, signature=self._sign(device_code))
        call = self._stub.WatchPairing(request, metadata=_METADATA)
        patience = _FIRST_SECONDS
        try:
            while (answer := await self._read(call, patience)) is not grpc.aio.EOF:
                yield answer
                patience = _SILENCE_SECONDS
        except grpc.aio.AioRpcError as error:
            raise relay_error(error) from None
        finally:
            call.cancel()

    async def close(self) -> None:
        """Ends what is under way."""
        await self._channel.close()

    def _proof(self) -> pairing_pb2.PairingProof:
        now_ms, nonce = self._clock.now_ms(), self._random_bytes(_NONCE_BYTES)
        signature = self._keys.signer.sign(start_statement(self._keys.public.identity, now_ms, nonce))
        return pairing_pb2.PairingProof(issue_time=timestamp_of(now_ms), nonce=nonce, signature=signature)

    def _sign(self, device_code: str) -> bytes:
        return self._keys.signer.sign(code_statement(device_code))

    async def _read(self, call: Any, seconds: float) -> Any:
        # A read that is given up ends its whole call, which is what is wanted here.
        reading = asyncio.ensure_future(call.read())
        timer = self._clock.call_later(seconds, reading.cancel)
        try:
            return await reading
        except asyncio.CancelledError:
            if not reading.cancelled() or _is_cancelled():
                raise
            raise _silent() from None
        finally:
            timer.cancel()
            reading.cancel()

    @staticmethod
    async def _answer(call: Any) -> Any:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise relay_error(error) from None


def may_pass(error: RelayError) -> bool:
    """Tell whether the trouble may be over when the same is asked again."""
    if not error.reason:
        return error.code not in _FINAL_WITHOUT_REASON
    return error.code not in _FINAL_CODES or error.reason in _REPEATED_REASONS


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _silent() -> RelayError:
    return RelayError(ServiceError(grpc.StatusCode.UNAVAILABLE, "", "nothing comes over the stream"))
