import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest

from relay_service.client.backends.addresses import RefusedAddress
from relay_service.client.backends.base import BackendFailure
from relay_service.client.backends.openai_http import OpenAIHttpBackend
from relay_service.client.backends.transport import CheckedTransport
from tests.relay_service.client.backends.jobs import generate
from tests.relay_service.client.backends.model_stub import DONE, ModelStub, event, model_stub, streamed


class Untouched(httpx.AsyncBaseTransport):
    """Fails the test when anything is sent."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        raise AssertionError(f"connected to {request.url.host}")


class Recording(httpx.AsyncBaseTransport):
    """Reaches one address and keeps what came."""

    def __init__(self, reachable: str) -> None:
        self.requests: list[httpx.Request] = []
        self._reachable = reachable

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if request.url.host != self._reachable:
            raise httpx.ConnectError("nobody there")
        return httpx.Response(200)


def resolving_to(*addresses: str) -> Callable[[str, int], Awaitable[list[str]]]:
    async def resolver(host: str, port: int) -> list[str]:
        return list(addresses)

    return resolver


@pytest.fixture
async def stub() -> AsyncIterator[ModelStub]:
    async with model_stub() as running:
        running.answer = streamed(event("Hi"), event(finish="stop"), DONE)
        yield running


@pytest.mark.parametrize(
    "addresses",
    [
        ("169.254.169.254",),
        ("127.0.0.1", "169.254.169.254"),
        ("fe80::1%lo",),
        ("::ffff:169.254.169.254",),
        ("not an address",),
    ],
)
async def test_a_name_that_leads_to_a_refused_address_is_not_connected_to(addresses: tuple[str, ...]) -> None:
    transport = CheckedTransport(Untouched(), resolving_to(*addresses))
    with pytest.raises(RefusedAddress):
        await transport.handle_async_request(httpx.Request("GET", "http://model.test/"))


async def test_a_refused_address_is_an_unavailable_service() -> None:
    transport = CheckedTransport(Untouched(), resolving_to("169.254.169.254"))
    backend = OpenAIHttpBackend(
        service="local", base_url="http://model.test", model="small", transport=transport
    )

    assert not await backend.detect()
    with pytest.raises(BackendFailure) as caught:
        await backend.run(generate("Hello?"), asyncio.Event())
    assert caught.value.code == "service_unavailable"


async def test_the_judged_address_is_the_one_connected_to(stub: ModelStub) -> None:
    transport = CheckedTransport(httpx.AsyncHTTPTransport(), resolving_to("127.0.0.1"))
    backend = OpenAIHttpBackend(
        service="local", base_url=f"http://model.test:{stub.port}", model="small", transport=transport
    )
    result = await backend.run(generate("Hello?"), asyncio.Event())
    await backend.close()

    assert result.text == "Hi"
    assert stub.requests[0].headers["host"] == f"model.test:{stub.port}"


async def test_tls_is_still_with_the_name() -> None:
    inner = Recording("2001:db8::1")
    transport = CheckedTransport(inner, resolving_to("2001:db8::1"))
    await transport.handle_async_request(httpx.Request("GET", "https://model.test/v1"))

    [sent] = inner.requests
    assert str(sent.url) == "https://[2001:db8::1]/v1"
    assert sent.headers["host"] == "model.test"
    assert sent.extensions["sni_hostname"] == "model.test"


async def test_addresses_are_tried_in_order() -> None:
    inner = Recording("127.0.0.1")
    transport = CheckedTransport(inner, resolving_to("::1", "127.0.0.1"))
    response = await transport.handle_async_request(httpx.Request("GET", "http://localhost/"))

    assert response.status_code == 200
    assert [request.url.host for request in inner.requests] == ["::1", "127.0.0.1"]


@pytest.mark.parametrize("addresses", [(), ("127.0.0.1", "::1")])
async def test_a_host_none_of_whose_addresses_answers(addresses: tuple[str, ...]) -> None:
    transport = CheckedTransport(Recording("192.0.2.1"), resolving_to(*addresses))
    with pytest.raises(httpx.ConnectError):
        await transport.handle_async_request(httpx.Request("GET", "http://model.test/"))
