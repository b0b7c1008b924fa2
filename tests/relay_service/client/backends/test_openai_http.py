import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from relay_service.client.backends.base import BackendFailure, RunCanceled, RunLimits
from relay_service.client.backends.openai_http import OpenAIHttpBackend
from relay_service.client.payloads import ChatMessage
from service_common.clocks import ManualClock
from tests.relay_service.client.backends.jobs import chat, generate
from tests.relay_service.client.backends.model_stub import (
    DONE,
    ModelStub,
    answered,
    event,
    model_stub,
    streamed,
)

HELLO = streamed(event("Hel"), event("lo"), event(finish="stop"), DONE)


@pytest.fixture
async def stub() -> AsyncIterator[ModelStub]:
    async with model_stub() as running:
        yield running


@pytest.fixture
async def backend(stub: ModelStub, manual_clock: ManualClock) -> AsyncIterator[OpenAIHttpBackend]:
    opened = OpenAIHttpBackend(service="local", base_url=stub.base_url, model="small", clock=manual_clock)
    yield opened
    await opened.close()


async def failure_of(backend: OpenAIHttpBackend, limits: RunLimits | None = None) -> BackendFailure:
    request = generate("Hello?") if limits is None else generate("Hello?", limits=limits)
    with pytest.raises(BackendFailure) as caught:
        await backend.run(request, asyncio.Event())
    return caught.value


async def test_a_prompt_is_one_streamed_completion_of_the_configured_model(
    stub: ModelStub, backend: OpenAIHttpBackend
) -> None:
    stub.answer = HELLO
    result = await backend.run(generate("Why?", system="Be brief."), asyncio.Event())

    assert (result.text, result.stop, result.stop_reported) == ("Hello", "end", True)
    [seen] = stub.requests
    assert (seen.method, seen.path) == ("POST", "/v1/chat/completions")
    # The whole body: nothing beside the conversation comes from the payload.
    assert seen.document == {
        "model": "small",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}],
        "stream": True,
    }


async def test_a_conversation_keeps_its_order(stub: ModelStub, backend: OpenAIHttpBackend) -> None:
    stub.answer = HELLO
    messages = (ChatMessage("user", "One?"), ChatMessage("assistant", "Two."), ChatMessage("user", "Three?"))
    await backend.run(chat(*messages, system="Count."), asyncio.Event())

    assert stub.requests[0].document["messages"] == [
        {"role": "system", "content": "Count."},
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "Two."},
        {"role": "user", "content": "Three?"},
    ]


async def test_the_owners_bound_on_tokens_is_sent(stub: ModelStub) -> None:
    stub.answer = HELLO
    backend = OpenAIHttpBackend(service="local", base_url=stub.base_url, model="small", max_tokens=64)
    await backend.run(generate("Hello?"), asyncio.Event())
    await backend.close()

    assert stub.requests[0].document["max_tokens"] == 64


async def test_the_run_is_measured_by_the_clock(
    stub: ModelStub, backend: OpenAIHttpBackend, manual_clock: ManualClock
) -> None:
    stub.answer = stub.stream_then_hang
    run = asyncio.create_task(backend.run(generate("Hello?"), asyncio.Event()))
    await stub.answering.wait()
    manual_clock.advance(59_999)
    assert not run.done()
    manual_clock.advance(1)

    with pytest.raises(BackendFailure) as caught:
        await run
    assert (caught.value.code, caught.value.retryable) == ("timeout", True)
    await stub.disconnected.wait()


async def test_the_cancel_event_drops_the_request(stub: ModelStub, backend: OpenAIHttpBackend) -> None:
    stub.answer = stub.stream_then_hang
    cancelled = asyncio.Event()
    run = asyncio.create_task(backend.run(generate("Hello?"), cancelled))
    await stub.answering.wait()
    cancelled.set()

    with pytest.raises(RunCanceled):
        await run
    await stub.disconnected.wait()


async def test_cancelling_the_task_drops_the_request(stub: ModelStub, backend: OpenAIHttpBackend) -> None:
    stub.answer = stub.stream_then_hang
    run = asyncio.create_task(backend.run(generate("Hello?"), asyncio.Event()))
    await stub.answering.wait()
    run.cancel()

    with pytest.raises(asyncio.CancelledError):
        await run
    await stub.disconnected.wait()


async def test_a_run_cancelled_beforehand_sends_nothing(stub: ModelStub, backend: OpenAIHttpBackend) -> None:
    cancelled = asyncio.Event()
    cancelled.set()

    with pytest.raises(RunCanceled):
        await backend.run(generate("Hello?"), cancelled)
    assert stub.requests == []


async def test_output_is_cut_off_while_it_streams(stub: ModelStub, backend: OpenAIHttpBackend) -> None:
    stub.answer = stub.stream_for_ever
    failure = await failure_of(backend, RunLimits(max_output_bytes=2_000, wall_clock_seconds=60))

    assert (failure.code, failure.retryable) == ("output-too-large", False)
    await stub.disconnected.wait()


@pytest.mark.parametrize("content", ["12345678", "éééé"])
async def test_output_may_have_exactly_its_limit_in_bytes(
    stub: ModelStub, backend: OpenAIHttpBackend, content: str
) -> None:
    stub.answer = streamed(event(content), event(finish="stop"), DONE)
    request = generate("Hello?", limits=RunLimits(max_output_bytes=8, wall_clock_seconds=60))
    assert (await backend.run(request, asyncio.Event())).text == content

    failure = await failure_of(backend, RunLimits(max_output_bytes=7, wall_clock_seconds=60))
    assert failure.code == "output-too-large"


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
async def test_what_a_server_says_about_its_failure_stays_here(
    stub: ModelStub, backend: OpenAIHttpBackend, status: int
) -> None:
    stub.answer = answered(status, b'{"error": "account 4711 of /home/ann is out of money"}')
    failure = await failure_of(backend)

    assert (failure.code, failure.retryable) == ("service_unavailable", True)
    assert str(failure) == "service_unavailable"
    assert failure.__cause__ is None


async def test_a_redirect_is_not_followed(stub: ModelStub, backend: OpenAIHttpBackend) -> None:
    async with model_stub() as elsewhere:
        stub.answer = answered(307, location=f"{elsewhere.base_url}/v1/chat/completions")
        failure = await failure_of(backend)

        assert failure.code == "service_unavailable"
        assert elsewhere.requests == []


async def test_proxy_settings_of_the_environment_are_not_read(
    stub: ModelStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with model_stub() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.base_url)
        stub.answer = HELLO
        backend = OpenAIHttpBackend(service="local", base_url=stub.base_url, model="small")
        await backend.run(generate("Hello?"), asyncio.Event())
        await backend.close()

        assert proxy.requests == []
        assert len(stub.requests) == 1


async def test_a_server_that_is_not_there(manual_clock: ManualClock) -> None:
    async with model_stub() as stub:
        port = stub.port
    backend = OpenAIHttpBackend(
        service="local", base_url=f"http://127.0.0.1:{port}", model="small", clock=manual_clock
    )

    assert not await backend.detect()
    assert (await failure_of(backend)).code == "service_unavailable"
    await backend.close()


async def test_a_server_that_closes_without_a_word(stub: ModelStub, backend: OpenAIHttpBackend) -> None:
    assert (await failure_of(backend)).code == "service_unavailable"


async def test_a_stream_cut_short_is_no_answer(stub: ModelStub, backend: OpenAIHttpBackend) -> None:
    stub.answer = streamed(event("Half an ans"))
    assert (await failure_of(backend)).code == "service_unavailable"


async def test_a_server_that_does_not_stream(stub: ModelStub, backend: OpenAIHttpBackend) -> None:
    document = {"choices": [{"message": {"content": "Whole."}, "finish_reason": "length"}]}
    stub.answer = answered(200, json.dumps(document).encode(), content_type="application/json")
    result = await backend.run(generate("Hello?"), asyncio.Event())

    assert (result.text, result.stop) == ("Whole.", "length")


async def test_a_whole_answer_is_cut_off_too(stub: ModelStub, backend: OpenAIHttpBackend) -> None:
    stub.answer = answered(200, b" " * 200_000, content_type="application/json")
    failure = await failure_of(backend, RunLimits(max_output_bytes=100, wall_clock_seconds=60))
    assert failure.code == "output-too-large"


async def test_a_compressed_answer_is_refused(stub: ModelStub, backend: OpenAIHttpBackend) -> None:
    bomb = gzip.compress(b" " * 1_000_000)
    stub.answer = answered(200, bomb, content_type="application/json", content_encoding="gzip")
    failure = await failure_of(backend)

    assert failure.code == "service_unavailable"
    assert stub.requests[0].headers["accept-encoding"] == "identity"


async def test_the_api_key_travels_in_its_header_alone(
    stub: ModelStub, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stub.answer = HELLO
    backend = OpenAIHttpBackend(
        service="local", base_url=stub.base_url, model="small", api_key="sk-very-secret"
    )
    with capture_logs() as logs:
        await backend.run(generate("Hello?"), asyncio.Event())
        await backend.detect()
    await backend.close()

    assert stub.requests[0].headers["authorization"] == "Bearer sk-very-secret"
    assert b"sk-very-secret" not in stub.requests[0].body
    assert "sk-very-secret" not in f"{caplog.text}{logs}{backend!r}{vars(backend)}"


async def test_without_a_key_none_is_sent(stub: ModelStub, backend: OpenAIHttpBackend) -> None:
    stub.answer = HELLO
    await backend.run(generate("Hello?"), asyncio.Event())
    assert "authorization" not in stub.requests[0].headers


@pytest.mark.parametrize(
    ("status", "body", "healthy"),
    [
        (200, b'{"data": [{"id": "large"}, {"id": "small"}]}', True),
        (200, b'{"data": [{"id": "small:latest"}]}', True),
        (200, b'{"data": [{"id": "smaller"}]}', False),
        (200, b'{"data": []}', False),
        (200, b'{"data": [null]}', False),
        (200, b"<html>", False),
        (200, b" " * 1_048_577, False),
        (404, b"", True),
        (405, b"", True),
        (401, b"", False),
        (302, b"", False),
        (503, b"", False),
    ],
)
async def test_health_is_what_the_list_of_models_says(
    stub: ModelStub, backend: OpenAIHttpBackend, status: int, body: bytes, healthy: bool
) -> None:
    stub.answer = answered(status, body)

    assert await backend.detect() is healthy
    assert (stub.requests[0].method, stub.requests[0].path) == ("GET", "/v1/models")


async def test_an_unhealthy_server_is_logged_without_its_words(
    stub: ModelStub, backend: OpenAIHttpBackend
) -> None:
    stub.answer = answered(200, b'{"data": [{"id": "another"}]}')
    with capture_logs() as logs:
        await backend.detect()
        await backend.detect()

    assert logs == [
        {"event": "backend_unhealthy", "service": "local", "reason": "model-not-listed", "log_level": "info"}
    ]


async def test_what_the_relay_is_told_about_it(backend: OpenAIHttpBackend) -> None:
    assert (backend.service, backend.backend_id, backend.backend_class, backend.model) == (
        "local",
        "openai-http",
        "http",
        "small",
    )


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_the_version_in_a_base_url_is_optional(stub: ModelStub, suffix: str) -> None:
    stub.answer = HELLO
    backend = OpenAIHttpBackend(service="local", base_url=f"{stub.base_url}/api{suffix}", model="small")
    await backend.run(generate("Hello?"), asyncio.Event())
    await backend.close()

    assert stub.requests[0].path == "/api/v1/chat/completions"


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8080",
        "ftp://127.0.0.1",
        "file:///etc/passwd",
        "http://",
        "http://ann:secret@127.0.0.1",
        "http://127.0.0.1/?model=x",
        "http://127.0.0.1/#x",
        "http://169.254.169.254/latest",
        "http://metadata.google.internal",
        "http://[fe80::1]:8080",
        "http://127.0.0.1:port",
    ],
)
def test_a_base_url_that_cannot_be_used(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        OpenAIHttpBackend(service="local", base_url=url, model="small")
