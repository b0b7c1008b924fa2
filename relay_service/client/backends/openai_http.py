"""A back end behind an OpenAI-compatible HTTP endpoint: llama.cpp, Ollama, vLLM, a provider."""

import asyncio
import json
import ssl
from functools import cache
from typing import Any, Final

import httpx
import structlog

from relay_service.client.backends.addresses import RefusedAddress, check_host
from relay_service.client.backends.base import BackendFailure, RunRequest, RunResult, turns_of
from relay_service.client.backends.completion import (
    Completion,
    CompletionStream,
    document_limit,
    read_document,
)
from relay_service.client.backends.supervision import supervise
from relay_service.client.backends.transport import CheckedTransport
from relay_service.client.outcomes import BackendClass
from service_common.clocks import Clock, SystemClock

CONNECT_SECONDS = 10.0
DETECT_SECONDS = 5.0
MAX_CONNECTIONS = 64
MODEL_LIST_BYTES = 1_048_576

_UNREACHABLE = (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, RefusedAddress, OSError)

log = structlog.get_logger(__name__)


class OpenAIHttpBackend:
    """Sends chat completions to one configured base URL and nowhere else.

    Redirects are not followed and the environment's proxy settings are not read. The request holds the
    configured model and the conversation; sampling is the server's own business.
    """

    backend_class: Final[BackendClass] = "http"

    def __init__(
        self,
        *,
        service: str,
        base_url: str,
        model: str,
        backend_id: str = "openai-http",
        api_key: str | None = None,
        max_tokens: int | None = None,
        clock: Clock | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Prepare; nothing is connected yet.

        Args:
            service: The owner's name for it.
            base_url: Scheme, host, port and perhaps a path; a trailing `/v1` may be left out.
            model: Name of the model to ask for.
            backend_id: One of the ids of HTTP back ends.
            api_key: Sent as a bearer token, kept nowhere else.
            max_tokens: Bound on the answer set by the owner; the server's own when absent.
            clock: Measures runs and their time limit.
            transport: Replaces the checked network transport.

        Raises:
            ValueError: The base URL is malformed or its address is refused.
        """
        self.service = service
        self.model = model
        self.backend_id = backend_id
        self._max_tokens = max_tokens
        self._clock = clock or SystemClock()
        self._base_url = checked_base_url(base_url)
        self._verdict = "healthy"
        self._client = httpx.AsyncClient(
            transport=transport or _network(),
            headers=_headers(api_key),
            follow_redirects=False,
            trust_env=False,
            # The wall clock of the run bounds everything else: a slow model is not a dead one.
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
        )

    async def detect(self) -> bool:
        """Tell whether the endpoint answers and knows the model.

        A server without a list of models is taken at its word.
        """
        try:
            async with (
                asyncio.timeout(DETECT_SECONDS),
                self._client.stream("GET", f"{self._base_url}/v1/models") as response,
            ):
                verdict = await self._judge(response)
        except (*_UNREACHABLE, BackendFailure, TimeoutError):
            verdict = "unreachable"
        # It is asked every few seconds, and news only once.
        if verdict not in ("healthy", self._verdict):
            log.info("backend_unhealthy", service=self.service, reason=verdict)
        self._verdict = verdict
        return verdict == "healthy"

    async def run(self, request: RunRequest, cancelled: asyncio.Event) -> RunResult:
        """Answer one job; see `Backend.run`."""
        started = self._clock.monotonic()
        completion = await supervise(
            self._complete(request), cancelled, request.limits.wall_clock_seconds, self._clock
        )
        duration_ms = round((self._clock.monotonic() - started) * 1000)
        return RunResult(completion.text, completion.stop, stop_reported=True, duration_ms=duration_ms)

    async def close(self) -> None:
        await self._client.aclose()

    async def _complete(self, request: RunRequest) -> Completion:
        url = f"{self._base_url}/v1/chat/completions"
        try:
            # Leaving this block early closes the connection, which is what makes a server stop generating.
            async with self._client.stream("POST", url, json=self._body(request)) as response:
                return await _read(response, request.limits.max_output_bytes)
        except _UNREACHABLE:
            raise BackendFailure("service_unavailable") from None

    def _body(self, request: RunRequest) -> dict[str, Any]:
        messages = [{"role": role, "content": content} for role, content in turns_of(request.payload)]
        body: dict[str, Any] = {"model": self.model, "messages": messages, "stream": True}
        if self._max_tokens is not None:
            body["max_tokens"] = self._max_tokens
        return body

    async def _judge(self, response: httpx.Response) -> str:
        if response.status_code in {httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED}:
            return "healthy"
        if response.status_code != httpx.codes.OK:
            return "refused"
        models = _model_ids(await _body_of(response, MODEL_LIST_BYTES))
        # Ollama lists a model that is asked for without a tag under its tag.
        return "healthy" if models & {self.model, f"{self.model}:latest"} else "model-not-listed"


def checked_base_url(text: str) -> str:
    """Return the base URL without a trailing slash or `/v1`.

    Raises:
        ValueError: Not an absolute http or https URL, one with credentials, a query or a fragment, or one
            whose address is refused.
    """
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise ValueError(f"not a URL: {error}") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise ValueError("must be an http or https URL with a host")
    if url.userinfo or url.query or url.fragment:
        raise ValueError("must have no credentials, query or fragment")
    check_host(url.host)
    return str(url).rstrip("/").removesuffix("/v1").rstrip("/")


def _network() -> httpx.AsyncBaseTransport:
    limits = httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS)
    return CheckedTransport(httpx.AsyncHTTPTransport(verify=_trusted_roots(), limits=limits))


@cache
def _trusted_roots() -> ssl.SSLContext:
    """Return what every back end checks certificates against; reading the roots takes about 0.1 s."""
    return httpx.create_ssl_context()


def _headers(api_key: str | None) -> dict[str, str]:
    # Compressed answers are declined, and one sent nevertheless is read raw and so makes no sense: a few
    # bytes could unpack to more than any limit.
    headers = {"accept": "text/event-stream, application/json", "accept-encoding": "identity"}
    return headers if api_key is None else {**headers, "authorization": f"Bearer {api_key}"}


async def _read(response: httpx.Response, limit_bytes: int) -> Completion:
    if response.status_code != httpx.codes.OK:
        raise BackendFailure("service_unavailable")
    if response.headers.get("content-type", "").startswith("application/json"):
        return read_document(await _body_of(response, document_limit(limit_bytes)), limit_bytes)
    stream = CompletionStream(limit_bytes)
    async for chunk in response.aiter_raw():
        stream.feed(chunk)
        if stream.ended:
            break
    return stream.finish()


async def _body_of(response: httpx.Response, limit_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > limit_bytes:
            raise BackendFailure("output-too-large")
    return bytes(body)


def _model_ids(body: bytes) -> set[str]:
    try:
        listed = json.loads(body)["data"]
        return {str(model["id"]) for model in listed}
    except (ValueError, KeyError, TypeError, RecursionError):
        return set()
