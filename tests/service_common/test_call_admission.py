"""Who gets in, over a real server."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from structlog.testing import capture_logs

from service_common.caller_identity import current_caller
from service_common.errors import ServiceError
from tests.service_common.loopback import (
    NOW_MS,
    OTHER_KEY,
    PROTOCOL,
    SERVICE,
    Loopback,
    Refusal,
    bidi,
    client_stream,
    method,
    server_stream,
    serving,
    signed,
    unary,
)

BODY = StringValue(value="hello").SerializeToString()


async def whoami(request: StringValue, context: object) -> StringValue:
    return StringValue(value=f"{current_caller()} says {request.value}")


async def count(request: StringValue, context: object) -> AsyncIterator[StringValue]:
    for number in range(3):
        yield StringValue(value=f"{current_caller()} {number}")


async def anybody(request: StringValue, context: object) -> StringValue:
    try:
        return StringValue(value=current_caller())
    except LookupError:
        return StringValue(value="nobody")


async def echo_stream(requests: Any, context: Any) -> None:
    while (request := await context.read()) is not grpc.aio.EOF:
        await context.write(request)


async def join(requests: AsyncIterator[StringValue], context: object) -> StringValue:
    return StringValue(value="".join([request.value async for request in requests]))


HANDLERS = {
    "WhoAmI": unary(whoami),
    "Count": server_stream(count),
    "Anybody": unary(anybody),
    "Session": bidi(echo_stream),
    "Unlisted": bidi(echo_stream),
    "Upload": client_stream(join),
}


@pytest.fixture
async def loopback() -> AsyncIterator[Loopback]:
    async with serving(HANDLERS, opened=("Anybody",), challenged=("Session",), manual=True) as server:
        yield server


async def test_a_signed_call_is_served_and_its_caller_known(loopback: Loopback) -> None:
    answer = await loopback.call("WhoAmI", BODY, signed(method("WhoAmI"), BODY))
    assert StringValue.FromString(answer).value == "device-1 says hello"


async def test_a_signed_call_may_be_answered_by_a_stream(loopback: Loopback) -> None:
    call = loopback.channel.unary_stream(method("Count"))(BODY, metadata=signed(method("Count"), BODY))
    answers = [StringValue.FromString(each).value async for each in call]
    assert answers == ["device-1 0", "device-1 1", "device-1 2"]


async def test_an_unsigned_call_is_refused(loopback: Loopback) -> None:
    refusal = await loopback.refusal("WhoAmI", BODY)
    assert refusal.code is grpc.StatusCode.UNAUTHENTICATED
    assert refusal.reason == "UNSIGNED_REQUEST"
    assert refusal.infos[0].domain == "test.sealwork.dev"


async def test_a_replayed_call_is_refused(loopback: Loopback) -> None:
    metadata = signed(method("WhoAmI"), BODY)
    await loopback.call("WhoAmI", BODY, metadata)
    refusal = await loopback.refusal("WhoAmI", BODY, metadata)
    assert refusal.code is grpc.StatusCode.UNAUTHENTICATED
    assert refusal.reason == "REPLAYED"


async def test_a_tampered_call_is_refused_and_leaves_the_nonce_to_its_owner(loopback: Loopback) -> None:
    metadata = signed(method("WhoAmI"), BODY)
    tampered = StringValue(value="hallo").SerializeToString()
    assert (await loopback.refusal("WhoAmI", tampered, metadata)).reason == "BAD_SIGNATURE"
    await loopback.call("WhoAmI", BODY, metadata)


async def test_bytes_that_mean_the_same_are_not_the_signed_bytes(loopback: Loopback) -> None:
    # An unknown field: parsed and serialized again, the message would be what was signed.
    assert StringValue.FromString(BODY + b"\x98\x06\x01").value == "hello"
    refusal = await loopback.refusal("WhoAmI", BODY + b"\x98\x06\x01", signed(method("WhoAmI"), BODY))
    assert refusal.reason == "BAD_SIGNATURE"


@pytest.mark.parametrize("offset_ms", [-120_000, 120_000])
async def test_a_clock_at_the_edge_of_the_window_is_good(loopback: Loopback, offset_ms: int) -> None:
    await loopback.call("WhoAmI", BODY, signed(method("WhoAmI"), BODY, issued_at_ms=NOW_MS + offset_ms))


@pytest.mark.parametrize("offset_ms", [-120_001, 120_001])
async def test_a_clock_beyond_the_window_is_told_the_time(loopback: Loopback, offset_ms: int) -> None:
    metadata = signed(method("WhoAmI"), BODY, issued_at_ms=NOW_MS + offset_ms)
    refusal = await loopback.refusal("WhoAmI", BODY, metadata)
    assert refusal.reason == "CLOCK_SKEW"
    assert dict(refusal.infos[0].metadata) == {
        "server_time_ms": "1700000000000",
        "max_skew_ms": "120000",
    }


async def test_unknown_callers_and_bad_signatures_get_one_answer(loopback: Loopback) -> None:
    unknown = await loopback.refusal("WhoAmI", BODY, signed(method("WhoAmI"), BODY, caller="device-9"))
    forged = await loopback.refusal("WhoAmI", BODY, signed(method("WhoAmI"), BODY, key=OTHER_KEY))
    assert unknown.reason == "BAD_SIGNATURE"
    assert unknown.everything == forged.everything


async def test_a_revoked_caller_learns_it(loopback: Loopback) -> None:
    loopback.directory.refusals["device-1"] = ServiceError(
        grpc.StatusCode.PERMISSION_DENIED, "DEVICE_REVOKED", "this device is cut off"
    )
    refusal = await loopback.refusal("WhoAmI", BODY, signed(method("WhoAmI"), BODY))
    assert refusal.code is grpc.StatusCode.PERMISSION_DENIED
    assert refusal.reason == "DEVICE_REVOKED"


async def test_an_open_method_needs_no_signature_and_has_no_caller(loopback: Loopback) -> None:
    answer = await loopback.call("Anybody", BODY)
    assert StringValue.FromString(answer).value == "nobody"


async def test_an_open_method_of_ours_still_needs_the_version(loopback: Loopback) -> None:
    refusal = await loopback.refusal("Anybody", BODY, ())
    assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
    assert refusal.reason == "UNSUPPORTED_PROTOCOL_VERSION"
    assert dict(refusal.infos[0].metadata) == {"supported": "1"}


async def test_a_caller_is_not_carried_over_to_another_call(loopback: Loopback) -> None:
    await loopback.call("WhoAmI", BODY, signed(method("WhoAmI"), BODY))
    assert StringValue.FromString(await loopback.call("Anybody", BODY)).value == "nobody"


async def test_a_session_gets_in_unsigned_to_be_challenged(loopback: Loopback) -> None:
    call = loopback.channel.stream_stream(method("Session"))()
    await call.write(BODY)
    assert await call.read() == BODY
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_streams_that_are_not_listed_are_refused(loopback: Loopback) -> None:
    call = loopback.channel.stream_stream(method("Unlisted"))(metadata=signed(method("Unlisted"), b""))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert Refusal.of(caught.value).reason == "NOT_IMPLEMENTED"
    upload = loopback.channel.stream_unary(method("Upload"))([BODY], metadata=PROTOCOL)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await upload
    assert Refusal.of(refused.value).reason == "NOT_IMPLEMENTED"


async def test_a_service_that_is_not_listed_is_refused_even_to_signers() -> None:
    async with serving(HANDLERS, opened=(), manual=True, listed=False) as loopback:
        with capture_logs() as logs:
            for _ in range(2):
                refusal = await loopback.refusal("WhoAmI", BODY, signed(method("WhoAmI"), BODY))
                assert refusal.code is grpc.StatusCode.UNIMPLEMENTED
                assert refusal.reason == "NOT_IMPLEMENTED"
    # A fault of the wiring: told once and not at every call.
    assert [(entry["log_level"], entry["method"]) for entry in logs] == [("error", method("WhoAmI"))]


async def test_a_method_that_does_not_exist_is_unimplemented_and_uncounted(loopback: Loopback) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await loopback.call("Nonsense", BODY, signed(method("Nonsense"), BODY))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert (
        loopback.metrics.value(
            "grpc_server_started_total", grpc_service=SERVICE, grpc_method="Nonsense", grpc_type="unary"
        )
        == 0.0
    )
