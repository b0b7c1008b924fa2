"""What callers see of exceptions, over a real server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from structlog.testing import capture_logs

from service_common.clocks import ManualClock
from service_common.errors import FieldViolation, ServiceError, invalid_argument
from tests.harness.waiting import eventually
from tests.service_common.loopback import (
    SERVICE,
    Loopback,
    Refusal,
    bidi,
    client_stream,
    method,
    server_stream,
    serving,
    unary,
)

BODY = StringValue(value="the prompt").SerializeToString()
SECRET = "db password is hunter2"


async def boom(request: Any, context: object) -> StringValue:
    raise ValueError(SECRET)


async def boom_after_one(request: Any, context: object) -> AsyncIterator[StringValue]:
    yield StringValue(value="one")
    raise ValueError(SECRET)


async def boom_writing(request: Any, context: Any) -> None:
    await context.write(StringValue(value="one"))
    raise ValueError(SECRET)


def handled(loopback: Loopback, name: str, kind: str, code: str) -> float:
    return loopback.metrics.value(
        "grpc_server_handled_total",
        grpc_service=SERVICE,
        grpc_method=name,
        grpc_type=kind,
        grpc_code=code,
    )


def assert_tells_nothing(refusal: Refusal) -> str:
    """Check an answer to an unexpected exception and return its incident id."""
    assert refusal.code is grpc.StatusCode.INTERNAL
    assert refusal.reason == "INTERNAL"
    assert refusal.infos[0].domain == "test.sealwork.dev"
    (key,) = refusal.infos[0].metadata
    assert key == "incident_id"
    incident_id = str(refusal.infos[0].metadata[key])
    assert len(incident_id) == 16
    assert refusal.text == f"internal error, incident {incident_id}"
    for secret in (b"hunter2", b"ValueError", b"the prompt", b"Traceback"):
        assert secret not in refusal.everything
    return incident_id


async def refusal_of(call: Any) -> Refusal:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return Refusal.of(caught.value)


async def test_the_text_of_an_exception_never_reaches_the_caller() -> None:
    handlers = {
        "Unary": unary(boom),
        "ServerStream": server_stream(boom_after_one),
        "Writer": server_stream(boom_writing),
        "ClientStream": client_stream(boom),
        "Session": bidi(boom_after_one),
    }
    async with serving(handlers) as loopback:
        channel = loopback.channel
        with capture_logs() as logs:
            refusals = [await loopback.refusal("Unary", BODY)]
            for name in ("ServerStream", "Writer"):
                stream = channel.unary_stream(method(name))(BODY, metadata=(("sealwork-protocol", "1"),))
                assert StringValue.FromString(await stream.read()).value == "one"
                refusals.append(await refusal_of(stream.read()))
            refusals.append(await refusal_of(channel.stream_unary(method("ClientStream"))([BODY])))
            session = channel.stream_stream(method("Session"))()
            assert StringValue.FromString(await session.read()).value == "one"
            refusals.append(await refusal_of(session.read()))
    incidents = [assert_tells_nothing(refusal) for refusal in refusals]
    assert len(set(incidents)) == 5
    assert [entry["incident_id"] for entry in logs] == incidents
    for entry in logs:
        assert entry["log_level"] == "error"
        assert entry["event"] == "call failed"
        assert isinstance(entry["exc_info"], ValueError)
        assert set(entry) == {"log_level", "event", "incident_id", "method", "exc_info"}


async def test_a_service_error_is_the_status_it_says() -> None:
    async def refuse(request: object, context: object) -> StringValue:
        raise invalid_argument([FieldViolation("stub.id", "is empty")])

    async with serving({"Refuse": unary(refuse)}) as loopback:
        refusal = await loopback.refusal("Refuse", BODY)
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
        assert refusal.text == "stub.id: is empty"
        assert refusal.reason == "FIELD_INVALID"
        assert [detail.type_url.rpartition(".")[2] for detail in refusal.status.details] == [
            "ErrorInfo",
            "BadRequest",
        ]
        assert handled(loopback, "Refuse", "unary", "INVALID_ARGUMENT") == 1
        assert (
            loopback.metrics.value(
                "sealwork_refused_calls_total", grpc_service=SERVICE, reason="FIELD_INVALID"
            )
            == 1
        )


async def test_a_service_error_alone_in_a_group_is_still_one() -> None:
    async def fails() -> None:
        raise ServiceError(grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND", "no such job")

    async def grouped(request: object, context: object) -> StringValue:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
        return StringValue()

    async with serving({"Grouped": unary(grouped)}) as loopback:
        assert (await loopback.refusal("Grouped", BODY)).reason == "JOB_NOT_FOUND"


async def test_an_abort_of_the_servicer_is_left_alone() -> None:
    async def abort(request: object, context: Any) -> None:
        await context.abort(grpc.StatusCode.OUT_OF_RANGE, "of its own")

    async with serving({"Abort": unary(abort)}) as loopback:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await loopback.call("Abort", BODY)
        assert caught.value.code() is grpc.StatusCode.OUT_OF_RANGE
        assert caught.value.details() == "of its own"
        assert handled(loopback, "Abort", "unary", "OUT_OF_RANGE") == 1


@pytest.mark.parametrize("body", [b"\xff\xff\xff", b"\x0a\x02\xc3\x28"])
async def test_bytes_that_do_not_parse_are_the_callers_fault(body: bytes) -> None:
    """The first is no protobuf at all; the second has text that is not UTF-8."""
    handlers = {"Unary": unary(boom), "ServerStream": server_stream(boom_after_one)}
    async with serving(handlers) as loopback:
        with capture_logs() as logs:
            unary_refusal = await loopback.refusal("Unary", body)
            stream = loopback.channel.unary_stream(method("ServerStream"))(
                body, metadata=(("sealwork-protocol", "1"),)
            )
            stream_refusal = await refusal_of(stream.read())
    for refusal in (unary_refusal, stream_refusal):
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
        assert refusal.reason == "FIELD_INVALID"
        assert refusal.text == "the request is not a valid message of this method"
    assert logs == []


async def test_a_frame_that_does_not_parse_can_be_caught_and_the_stream_lives_on() -> None:
    async def tolerant(requests: object, context: Any) -> None:
        while True:
            try:
                request = await context.read()
            except ServiceError as error:
                await context.write(StringValue(value=error.reason))
                continue
            if request is grpc.aio.EOF:
                return
            await context.write(request)

    async with serving({"Session": bidi(tolerant)}) as loopback:
        session = loopback.channel.stream_stream(method("Session"))()
        await session.write(b"\xff\xff")
        assert StringValue.FromString(await session.read()).value == "FIELD_INVALID"
        await session.write(BODY)
        assert await session.read() == BODY
        await session.done_writing()
        assert await session.code() is grpc.StatusCode.OK


async def test_a_frame_that_does_not_parse_ends_a_stream_that_does_not_catch_it() -> None:
    async def strict(requests: AsyncIterator[Any], context: Any) -> None:
        async for request in requests:
            await context.write(request)

    async with serving({"Session": bidi(strict)}) as loopback:
        session = loopback.channel.stream_stream(method("Session"))()
        await session.write(b"\xff\xff")
        assert (await refusal_of(session.read())).reason == "FIELD_INVALID"


async def test_a_response_that_does_not_serialize_is_our_fault() -> None:
    async def wrong(request: object, context: object) -> object:
        return SECRET

    async with serving({"Wrong": unary(wrong)}) as loopback:
        assert_tells_nothing(await loopback.refusal("Wrong", BODY))


async def test_a_placeholder_of_the_generated_servicer_is_unimplemented() -> None:
    def placeholder(request: object, context: Any) -> None:
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        raise NotImplementedError(SECRET)

    async with serving({"Later": unary(placeholder)}) as loopback:
        refusal = await loopback.refusal("Later", BODY)
        assert refusal.code is grpc.StatusCode.UNIMPLEMENTED
        assert refusal.reason == "NOT_IMPLEMENTED"


async def test_a_cancellation_that_was_not_meant_for_the_call_does_not_leave_it_hanging() -> None:
    async def shared(request: object, context: object) -> StringValue:
        future: asyncio.Future[StringValue] = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    async with serving({"Shared": unary(shared)}) as loopback:
        assert_tells_nothing(await loopback.refusal("Shared", BODY))


@pytest.mark.parametrize("ending", ["raise", "convert"])
async def test_a_caller_that_goes_away_is_counted_as_cancelled(ending: str) -> None:
    entered = asyncio.Event()

    async def wait(request: object, context: object) -> StringValue:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if ending == "convert":
                raise ValueError(SECRET) from None
            raise
        return StringValue()

    async with serving({"Wait": unary(wait)}) as loopback:
        call = loopback.channel.unary_unary(method("Wait"))(BODY, metadata=(("sealwork-protocol", "1"),))
        await asyncio.wait_for(entered.wait(), 10)
        call.cancel()
        await eventually(lambda: handled(loopback, "Wait", "unary", "CANCELLED") == 1)
        assert handled(loopback, "Wait", "unary", "INTERNAL") == 0


async def test_a_caller_that_goes_away_while_it_is_written_to_is_cancelled() -> None:
    async def flood(request: object, context: Any) -> None:
        while True:
            await context.write(StringValue(value="x" * 10_000))

    async with serving({"Flood": server_stream(flood)}) as loopback:
        call = loopback.channel.unary_stream(method("Flood"))(BODY, metadata=(("sealwork-protocol", "1"),))
        await call.read()
        call.cancel()
        await eventually(lambda: handled(loopback, "Flood", "server_stream", "CANCELLED") == 1)


async def test_a_refusal_that_nobody_receives_any_more_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    entered = asyncio.Event()

    async def session(requests: object, context: Any) -> None:
        while await context.read() is not grpc.aio.EOF:
            entered.set()
        # For a handler that waits in a read, a caller that went away looks like one that is done writing.
        raise ServiceError(grpc.StatusCode.CANCELLED, "LOST", "the stream was lost")

    async with serving({"Session": bidi(session)}) as loopback:
        call = loopback.channel.stream_stream(method("Session"))()
        await call.write(BODY)
        await asyncio.wait_for(entered.wait(), 10)
        call.cancel()
        await eventually(lambda: handled(loopback, "Session", "bidi_stream", "CANCELLED") == 1)
    assert caplog.records == []


async def test_work_whose_caller_will_not_wait_is_not_begun() -> None:
    begun: list[object] = []

    async def work(request: object, context: object) -> StringValue:
        begun.append(request)
        return StringValue()

    async with serving({"Work": unary(work)}) as loopback:
        await loopback.call("Work", BODY)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await loopback.call("Work", BODY, timeout=0.04)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert len(begun) == 1


async def test_every_call_is_counted_and_timed() -> None:
    clock = ManualClock(1_700_000_000_000)

    async def takes_two_seconds(request: StringValue, context: object) -> StringValue:
        clock.advance(2_000)
        return request

    async with serving({"Slow": unary(takes_two_seconds)}, clock=clock) as loopback:
        for _ in range(3):
            assert await loopback.call("Slow", BODY) == BODY
        labels = {"grpc_service": SERVICE, "grpc_method": "Slow", "grpc_type": "unary"}
        assert loopback.metrics.value("grpc_server_started_total", **labels) == 3
        assert handled(loopback, "Slow", "unary", "OK") == 3
        assert loopback.metrics.value("grpc_server_handling_seconds_count", **labels) == 3
        assert loopback.metrics.value("grpc_server_handling_seconds_sum", **labels) == 6.0


async def test_a_code_that_the_servicer_set_is_the_code_that_is_counted() -> None:
    async def set_code(request: StringValue, context: Any) -> StringValue:
        context.set_code(grpc.StatusCode.DATA_LOSS)
        return request

    async with serving({"Code": unary(set_code)}) as loopback:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await loopback.call("Code", BODY)
        assert caught.value.code() is grpc.StatusCode.DATA_LOSS
        assert handled(loopback, "Code", "unary", "DATA_LOSS") == 1
