"""What is described and not served says so, in words that help."""

from typing import Any

import grpc
import grpc.aio
import pytest

from sealwork.relay.v1 import control_plane_pb2, pairing_pb2
from tests.relay_service.raw_client import DOMAIN, RawOperator, RawParty, Refusal, message_type, method_of
from tests.relay_service.relay_fixture import RelayUnderTest, keys_of

PROTOCOL = (("sealwork-protocol", "1"),)
CONTROL = "ControlPlaneService"
CONTROL_METHODS = [
    "GetProjection",
    "ReplaceProjection",
    "WatchProjection",
    "ListPairings",
    "ApprovePairing",
    "DenyPairing",
]
PAIRING: dict[str, Any] = {
    "StartPairing": pairing_pb2.StartPairingRequest(label="laptop"),
    "WatchPairing": pairing_pb2.WatchPairingRequest(device_code="code"),
    "PollPairing": pairing_pb2.PollPairingRequest(device_code="code"),
}


class Controller(RawOperator):
    service = CONTROL


async def refused(party: RawParty, method: str, body: bytes, metadata: Any = None) -> Refusal:
    """The refusal of a method, whether it answers once or with a stream."""
    metadata = party.signed(method, body) if metadata is None else metadata
    kind = "unary_stream" if method.startswith("Watch") else "unary_unary"
    call = getattr(party.channel, kind)(method_of(party.service, method))(body, metadata=metadata, timeout=10)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (call.read() if method.startswith("Watch") else call)
    return Refusal.of_call(caught.value.code(), caught.value.trailing_metadata())


def test_every_method_of_the_control_plane_is_here() -> None:
    file = control_plane_pb2.DESCRIPTOR
    assert [method.name for method in file.services_by_name[CONTROL].methods] == CONTROL_METHODS


@pytest.mark.parametrize("method", CONTROL_METHODS)
async def test_the_control_plane_points_to_the_file(relay: RelayUnderTest, method: str) -> None:
    operator = Controller(relay.channel, "operator", keys_of("operator"), relay.clock.now_ms)
    body = message_type(CONTROL, method)().SerializeToString()
    refusal = await refused(operator, method, body)
    assert (refusal.code, refusal.reason, refusal.domain) == (
        grpc.StatusCode.UNIMPLEMENTED,
        "NOT_IMPLEMENTED",
        DOMAIN,
    )
    assert "projection file" in refusal.message


@pytest.mark.parametrize("method", CONTROL_METHODS)
async def test_and_tells_that_to_the_operator_alone(relay: RelayUnderTest, method: str) -> None:
    for name, keys in (("operator", "stranger"), ("demo", "demo"), ("runner-1", "runner-1")):
        caller = Controller(relay.channel, name, keys_of(keys), relay.clock.now_ms)
        assert (await refused(caller, method, b"")).reason == "BAD_SIGNATURE"


@pytest.mark.parametrize("method", PAIRING)
async def test_pairing_by_code_is_not_offered(relay: RelayUnderTest, method: str) -> None:
    """Told to anyone: whoever pairs has no key here yet."""
    body = PAIRING[method].SerializeToString()
    refusal = await refused(relay.daemon(), method, body, PROTOCOL)
    assert (refusal.code, refusal.reason, refusal.domain) == (
        grpc.StatusCode.UNIMPLEMENTED,
        "PAIRING_NOT_OFFERED",
        DOMAIN,
    )
    without_version = await refused(relay.daemon(), method, body, ())
    assert without_version.reason == "UNSUPPORTED_PROTOCOL_VERSION"
