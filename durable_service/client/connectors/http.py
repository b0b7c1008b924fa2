"""Effects by HTTP: one request with an idempotency key, and a look-up by that key."""

from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import quote, urlsplit

import httpx

from durable_service.client.actions import Action
from durable_service.client.connectors.base import Absent, Finding, Found, Unsettled
from durable_service.client.errors import NotSentError
from durable_service.client.stop_signal import StopSignal

KEY_HEADER: Final = "Idempotency-Key"
KEY_PLACE: Final = "{key}"
SECONDS: Final = 30.0

_REFERENCE_CHARACTERS: Final = 512
# Where the connection was never there, no byte of the request can have left.
_BEFORE_SENDING: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
)


class DestinationError(Exception):
    """The action is for another destination than this connector serves. Nothing was sent."""


class HttpFailure(Exception):  # noqa: N818 - an answer, of which it is not known what it means
    """The remote side answered with a status that is no success."""


class HttpConnector:
    """Sends an action's arguments as JSON to one URL, which is the destination of its actions.

    The remote side has to honour the `Idempotency-Key` header and to answer for a key under `lookup_url`.
    A redirect is not followed: it would lead to another destination.

    Attributes:
        version: Bound into every action.
        destination: The URL.
    """

    def __init__(
        self,
        url: str,
        *,
        version: str,
        lookup_url: str | None = None,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        absent_statuses: Collection[int] = (),
        client: httpx.AsyncClient | None = None,
    ) -> None:
        """Serve one destination.

        Args:
            url: Where requests go.
            version: Such as `payments@1`; change it with anything about how requests are made.
            lookup_url: Where to ask for a key; `{key}` is replaced by it. None means that outcomes cannot be
                looked up here.
            method: Of the request.
            headers: Sent with every request, credentials for one.
            absent_statuses: Statuses by which the remote side promises that a key has not happened and never
                will, such as 410. That it merely knows nothing (404) is no such promise.
            client: To use in place of an own one; without retries of its own.

        Raises:
            ValueError: A URL cannot be used.
        """
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
            raise ValueError(f"{url!r} is not an http or https URL")
        if lookup_url is not None and KEY_PLACE not in lookup_url:
            raise ValueError(f"the look-up URL needs {KEY_PLACE} where the key belongs")
        self.version = version
        self.destination = url
        self._lookup_url = lookup_url
        self._method = method
        self._headers = dict(headers or {})
        self._absent_statuses = frozenset(absent_statuses)
        self._client = client or httpx.AsyncClient(timeout=SECONDS, follow_redirects=False)

    async def dispatch(self, action: Action, signal: StopSignal) -> str:
        """Send the request; the result is kept where the answer's `Location` says, or under the key.

        Raises:
            NotSentError: There was no connection, or the action is for somewhere else.
            HttpFailure: The answer is no success; the outcome is unknown.
            httpx.HTTPError: There was no answer; the outcome is unknown.
        """
        del signal
        if action.destination != self.destination:
            raise NotSentError("the action is for another destination than this connector serves")
        headers = {**self._headers, KEY_HEADER: action.idempotency_key, "Content-Type": "application/json"}
        try:
            answer = await self._client.request(
                self._method, self.destination, content=action.args_json, headers=headers
            )
        except _BEFORE_SENDING as error:
            raise NotSentError(f"no connection: {type(error).__name__}") from error
        if not answer.is_success:
            raise HttpFailure(f"the remote side answered {answer.status_code}")
        return _result_ref(action, answer)

    async def reconcile(self, action: Action) -> Finding:
        """Ask for the key.

        Raises:
            DestinationError: The action is for somewhere else.
            httpx.HTTPError: There was no answer.
        """
        if action.destination != self.destination:
            raise DestinationError("the action is for another destination than this connector serves")
        looked = f"http-lookup:{action.idempotency_key}"
        if self._lookup_url is None:
            return Unsettled(looked)
        url = self._lookup_url.replace(KEY_PLACE, quote(action.idempotency_key, safe=""))
        answer = await self._client.get(url, headers=self._headers)
        if answer.is_success:
            return Found(_result_ref(action, answer), f"http-receipt:{action.idempotency_key}")
        if answer.status_code in self._absent_statuses:
            return Absent(f"http-absent-{answer.status_code}:{action.idempotency_key}")
        return Unsettled(looked)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _result_ref(action: Action, answer: httpx.Response) -> str:
    location: str = answer.headers.get("Location", "")
    # A place that does not fit an identifier is no reason to doubt what has happened.
    if 0 < len(location) <= _REFERENCE_CHARACTERS and location.isascii() and location.isprintable():
        return location
    return f"http:{action.idempotency_key}"
