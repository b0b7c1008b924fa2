"""A stream of requests whose first message is signed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.wrappers_pb2 import StringValue

from service_common.caller_identity import current_caller
from service_common.clocks import ManualClock
from tests.service_common.loopback import (
    NOW_MS,
    OTHER_KEY,
    PROTOCOL,
    Loopback,
    Refusal,
    client_stream,
    method,
    serving,
    signed,
)

FIRST = StringValue(value="first").SerializeToString()
SECOND = StringValue(value="second").SerializeToString()


async def joined(requests: AsyncIterator[StringValue], context: Any) -> StringValue:
    values = [request.value async for request in requests]
    return StringValue(value=f"{current_caller()}:{','.join(values)}")


def uploading(clock: ManualClock | None = None) -> Any:
    return serving(
        {"Upload": client_stream(joined)}, opened=(), uploads=("Upload",), clock=clock, manual=True
    )


async def refused(loopback: Loopback, messages: Any, metadata: Any) -> Refusal:
    try:
        await loopback.channel.stream_unary(method("Upload"))(messages, metadata=metadata, timeout=10)
    except grpc.aio.AioRpcError as error:
        return Refusal.of(error)
    raise AssertionError("the upload was answered")


async def test_the_first_message_is_what_is_signed() -> None:
    async with uploading() as loopback:
        answer = await loopback.channel.stream_unary(method("Upload"))(
            [FIRST, SECOND], metadata=signed(method("Upload"), FIRST), timeout=10
        )

    assert StringValue.FromString(answer).value == "device-1:first,second"


async def test_refusals() -> None:
    async with uploading() as loopback:
        unsigned = await refused(loopback, [FIRST], PROTOCOL)
        forged = await refused(loopback, [FIRST], signed(method("Upload"), FIRST, key=OTHER_KEY))
        swapped = await refused(loopback, [SECOND, FIRST], signed(method("Upload"), FIRST))
        empty = await refused(loopback, [], signed(method("Upload"), b""))

    assert (unsigned.code, unsigned.reason) == (grpc.StatusCode.UNAUTHENTICATED, "UNSIGNED_REQUEST")
    assert forged.reason == swapped.reason == "BAD_SIGNATURE"
    assert (empty.code, empty.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "PROTOCOL_VIOLATION")


async def test_a_signed_upload_is_accepted_once() -> None:
    metadata = signed(method("Upload"), FIRST)
    async with uploading() as loopback:
        await loopback.channel.stream_unary(method("Upload"))([FIRST], metadata=metadata, timeout=10)
        again = await refused(loopback, [FIRST], metadata)

    assert again.reason == "REPLAYED"


async def test_nobody_may_hold_an_upload_open_without_a_word() -> None:
    clock = ManualClock(NOW_MS)
    async with uploading(clock) as loopback:
        never = asyncio.Event()

        async def silence() -> AsyncIterator[bytes]:
            await never.wait()
            yield b""

        waiting = asyncio.create_task(refused(loopback, silence(), signed(method("Upload"), FIRST)))
        while not waiting.done():
            await clock.advance_async(10_000)
        refusal = await waiting

    assert refusal.reason == "PROTOCOL_VIOLATION"


async def test_a_later_message_that_is_none_of_the_method() -> None:
    async with uploading() as loopback:
        refusal = await refused(loopback, [FIRST, b"\xff"], signed(method("Upload"), FIRST))

    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
