"""An HTTP transport that connects to nothing but addresses it has judged."""

from collections.abc import Awaitable, Callable
from ipaddress import ip_address

import httpx

from relay_service.client.backends.addresses import RefusedAddress, check_address, check_host, resolve

_DEFAULT_PORTS = {"http": 80, "https": 443}

Resolver = Callable[[str, int], Awaitable[list[str]]]


class CheckedTransport(httpx.AsyncBaseTransport):
    """Resolves a host itself, judges every address, and connects to exactly one of those.

    Judging a name and letting the connection resolve it again would leave room for another answer in
    between.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, resolver: Resolver = resolve) -> None:
        self._inner = inner
        self._resolver = resolver

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request to the first address of its host that can be reached.

        Raises:
            RefusedAddress: The host, or any address it resolves to, is refused.
            httpx.HTTPError: The request failed.
            OSError: The host cannot be resolved.
        """
        host = request.url.raw_host.decode("ascii")
        failure: httpx.ConnectError | None = None
        for address in await self._addresses(host, request.url):
            try:
                return await self._inner.handle_async_request(_addressed(request, host, address))
            except httpx.ConnectError as error:
                failure = error
        raise failure or httpx.ConnectError("the host has no address")

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _addresses(self, host: str, url: httpx.URL) -> list[str]:
        check_host(host)
        addresses = await self._resolver(host, url.port or _DEFAULT_PORTS[url.scheme])
        for address in addresses:
            try:
                check_address(ip_address(address.partition("%")[0]))
            except RefusedAddress:
                raise
            except ValueError as error:
                raise RefusedAddress(f"{host} does not resolve to an address") from error
        return addresses


def _addressed(request: httpx.Request, host: str, address: str) -> httpx.Request:
    """Return the request aimed at the address; the Host header and the TLS name stay the host's."""
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": host},
    )
