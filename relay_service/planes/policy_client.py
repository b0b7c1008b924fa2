"""The operator's policy service over gRPC."""

import asyncio
from typing import Final

import grpc
import grpc.aio

from relay_service.core.limits import SIGNED_GRANT_BYTES
from relay_service.planes import convert
from relay_service.policy import Decision, Declined, Granted, PolicyUnavailable, Slot, SlotVerdict, WonJob
from sealwork.relay.v1 import policy_pb2, policy_pb2_grpc
from service_common.channel_options import calls_channel_options

_VERDICTS: Final = {
    policy_pb2.SLOT_VERDICT_OK: SlotVerdict.OK,
    policy_pb2.SLOT_VERDICT_NOT_DECLARED: SlotVerdict.NOT_DECLARED,
    policy_pb2.SLOT_VERDICT_UNMAPPED: SlotVerdict.UNMAPPED,
    policy_pb2.SLOT_VERDICT_WAITING: SlotVerdict.WAITING,
}
# A policy that is back is found within the time that it is left alone.
_RECONNECT_MS: Final = 1_000


class PolicyClient:
    """Asks over one channel, which connects when the first question is asked.

    Args:
        address: `host:port` or `unix:PATH`.
        credentials: for TLS; None for plaintext.
    """

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        given = dict(calls_channel_options()) | {
            "grpc.max_reconnect_backoff_ms": _RECONNECT_MS,
            "grpc.initial_reconnect_backoff_ms": 200,
        }
        options = tuple(given.items())
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(address, options=options)
        else:
            self._channel = grpc.aio.secure_channel(address, credentials, options=options)
        self._stub = policy_pb2_grpc.PolicyServiceStub(self._channel)

    async def close(self) -> None:
        """Ends the connection."""
        await self._channel.close()

    async def reconnect(self, seconds: float) -> bool:
        """As `PolicyService.reconnect`."""
        try:
            async with asyncio.timeout(seconds):
                await self._channel.channel_ready()
        except TimeoutError:
            return False
        return True

    async def check_slot(self, slot: Slot, seconds: float) -> SlotVerdict:
        """As `PolicyService.check_slot`."""
        request = policy_pb2.CheckSlotRequest(
            site_id=slot.site_id, owner=slot.owner, purpose=slot.purpose, kind=slot.kind
        )
        try:
            answer = await self._stub.CheckSlot(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise _unavailable(error) from None
        verdict = _VERDICTS.get(answer.verdict)
        if verdict is None:
            raise PolicyUnavailable
        return verdict

    async def author_grant(self, won: WonJob, seconds: float) -> Decision:
        """As `PolicyService.author_grant`."""
        request = policy_pb2.AuthorGrantRequest(
            site_id=won.site_id,
            stub=convert.stub_to_proto(won.stub),
            device_owner=won.device_owner,
            runner_id=won.runner_id,
            lease_id=won.lease_id,
            matrix=[convert.capability_to_proto(row) for row in won.matrix],
        )
        try:
            answer = await self._stub.AuthorGrant(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise _unavailable(error) from None
        match answer.WhichOneof("decision"):
            case "grant":
                return _granted(answer.grant.SerializeToString())
            case "declined":
                return Declined(answer.declined.permanent)
            case _:
                raise PolicyUnavailable


def _granted(signed_grant: bytes) -> Granted:
    if not 0 < len(signed_grant) <= SIGNED_GRANT_BYTES:
        # Nothing that is a grant is as large, and it has to fit a frame beside the stub.
        raise PolicyUnavailable
    return Granted(signed_grant)


def _unavailable(error: grpc.aio.AioRpcError) -> PolicyUnavailable:
    # What it says is for its operator, who sees it where the policy runs, and never for a site or device.
    return PolicyUnavailable(may_retry=error.code() is grpc.StatusCode.UNAVAILABLE)
