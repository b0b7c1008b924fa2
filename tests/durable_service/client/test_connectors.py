"""The connectors that ship: what they send, and what they take for a proof."""

from typing import Any

import httpx
import pytest

from durable_service.client.actions import Action, action_of
from durable_service.client.connectors import (
    Absent,
    Found,
    HttpConnector,
    MongoDocumentConnector,
    Unsettled,
)
from durable_service.client.connectors.http import DestinationError, HttpFailure
from durable_service.client.connectors.mongodb_document import BindingError
from durable_service.client.errors import NotSentError
from durable_service.client.stop_signal import StopCause, StopSignal
from tests.durable_service.client.played_service import HASH, IDEMPOTENCY, action

URL = "https://api.example.org/orders"
LOOKUP = "https://api.example.org/orders/{key}"


def wanted(destination: str = URL, version: str = "orders@1", args: bytes = b'{"text":"hello"}') -> Action:
    message = action("EXECUTING")
    message.destination, message.connector_version, message.args = destination, version, args
    return action_of(message)


def http_connector(
    answer: httpx.Response | Exception, **options: Any
) -> tuple[HttpConnector, list[httpx.Request]]:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = httpx.AsyncClient(transport=httpx.MockTransport(handle))
    return HttpConnector(URL, version="orders@1", lookup_url=LOOKUP, client=client, **options), seen


async def test_a_request_carries_the_key_and_the_canonical_arguments() -> None:
    connector, seen = http_connector(httpx.Response(201), headers={"Authorization": "Bearer x"})
    assert await connector.dispatch(wanted(), StopSignal("t-1")) == f"http:{IDEMPOTENCY}"
    (request,) = seen
    assert (request.method, str(request.url)) == ("POST", URL)
    assert request.headers["idempotency-key"] == IDEMPOTENCY
    assert request.headers["authorization"] == "Bearer x"
    assert request.content == b'{"text":"hello"}'


async def test_the_result_is_where_the_answer_says() -> None:
    connector, _ = http_connector(httpx.Response(201, headers={"Location": "/orders/7"}))
    assert await connector.dispatch(wanted(), StopSignal("t-1")) == "/orders/7"


@pytest.mark.parametrize("place", ["", "x" * 513, "/bad\x7f"])
async def test_a_place_that_is_no_identifier_is_no_reason_for_doubt(place: str) -> None:
    connector, _ = http_connector(httpx.Response(201, headers={"Location": place}))
    assert await connector.dispatch(wanted(), StopSignal("t-1")) == f"http:{IDEMPOTENCY}"


@pytest.mark.parametrize("status", [302, 400, 409, 500, 503])
async def test_an_answer_that_is_no_success_is_not_taken_for_a_failure_to_send(status: int) -> None:
    connector, _ = http_connector(httpx.Response(status, headers={"Location": "https://elsewhere.example"}))
    with pytest.raises(HttpFailure, match=f"the remote side answered {status}"):
        await connector.dispatch(wanted(), StopSignal("t-1"))


@pytest.mark.parametrize("error", [httpx.ConnectError("refused"), httpx.ConnectTimeout("slow")])
async def test_without_a_connection_nothing_was_sent(error: Exception) -> None:
    connector, _ = http_connector(error)
    with pytest.raises(NotSentError, match=type(error).__name__):
        await connector.dispatch(wanted(), StopSignal("t-1"))


@pytest.mark.parametrize(
    "error", [httpx.ReadError("reset"), httpx.ReadTimeout("slow"), httpx.WriteError("x")]
)
async def test_a_request_that_may_have_arrived_is_in_doubt(error: Exception) -> None:
    connector, _ = http_connector(error)
    with pytest.raises(type(error)):
        await connector.dispatch(wanted(), StopSignal("t-1"))


async def test_another_destination_is_never_touched() -> None:
    connector, seen = http_connector(httpx.Response(200))
    other = wanted("https://evil.example/orders")
    with pytest.raises(NotSentError):
        await connector.dispatch(other, StopSignal("t-1"))
    with pytest.raises(DestinationError):
        await connector.reconcile(other)
    assert seen == []


async def test_a_key_that_is_found_is_a_proof() -> None:
    connector, seen = http_connector(httpx.Response(200, headers={"Location": "/orders/7"}))
    assert await connector.reconcile(wanted()) == Found("/orders/7", f"http-receipt:{IDEMPOTENCY}")
    assert seen[0].method == "GET"
    # The key is a part of the path, whatever is in it.
    assert seen[0].url.raw_path == b"/orders/sha256%3A" + b"2" * 64


async def test_a_key_that_is_not_found_proves_nothing_unless_the_remote_side_promises() -> None:
    connector, _ = http_connector(httpx.Response(404))
    assert await connector.reconcile(wanted()) == Unsettled(f"http-lookup:{IDEMPOTENCY}")
    connector, _ = http_connector(httpx.Response(410), absent_statuses={410})
    assert await connector.reconcile(wanted()) == Absent(f"http-absent-410:{IDEMPOTENCY}")


async def test_a_connector_without_a_look_up_settles_nothing() -> None:
    connector = HttpConnector(URL, version="orders@1")
    assert await connector.reconcile(wanted()) == Unsettled(f"http-lookup:{IDEMPOTENCY}")
    await connector.close()


@pytest.mark.parametrize("url", ["ftp://x/y", "not a url", "https:///path"])
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is not an http or https URL"):
        HttpConnector(url, version="orders@1")


def test_a_look_up_without_a_place_for_the_key_is_refused() -> None:
    with pytest.raises(ValueError, match="the look-up URL needs"):
        HttpConnector(URL, version="orders@1", lookup_url="https://api.example.org/orders")


class DuplicateKeyError(Exception):
    """As the database's driver names it."""


class FakeCollection:
    """As much of a collection as an insertion by id needs."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, Any]] = {}
        self.error: Exception | None = None
        self.writes = 0

    async def insert_one(self, document: Any) -> None:
        self.writes += 1
        if self.error is not None:
            raise self.error
        if document["_id"] in self.documents:
            raise DuplicateKeyError
        self.documents[document["_id"]] = document

    async def find_one(self, query: Any) -> Any:
        return self.documents.get(query["_id"])


def mongo_action(**changes: Any) -> Action:
    return wanted(**{"destination": "invoices", "version": "mongodb-document@1", **changes})


async def test_a_document_is_written_once_under_the_key() -> None:
    collection = FakeCollection()
    connector = MongoDocumentConnector(collection, destination="invoices")
    for _ in range(2):
        result_ref = await connector.dispatch(mongo_action(), StopSignal("t-1"))
        assert result_ref == f"mongodb-document:{IDEMPOTENCY}"
    assert collection.documents == {
        IDEMPOTENCY: {"_id": IDEMPOTENCY, "preparedHash": HASH, "value": {"text": "hello"}}
    }


async def test_a_race_of_two_writers_is_settled_by_reading_back() -> None:
    collection = FakeCollection()
    connector = MongoDocumentConnector(collection, destination="invoices")
    await connector.dispatch(mongo_action(), StopSignal("t-1"))
    collection.error = DuplicateKeyError()
    assert await connector.dispatch(mongo_action(), StopSignal("t-1")) == f"mongodb-document:{IDEMPOTENCY}"


async def test_a_document_of_another_action_under_the_key_is_refused() -> None:
    collection = FakeCollection()
    collection.documents[IDEMPOTENCY] = {"_id": IDEMPOTENCY, "preparedHash": "sha256:other"}
    connector = MongoDocumentConnector(collection, destination="invoices")
    with pytest.raises(BindingError):
        await connector.dispatch(mongo_action(), StopSignal("t-1"))
    assert await connector.reconcile(mongo_action()) == Unsettled(f"mongodb-lookup:{IDEMPOTENCY}")


async def test_a_document_is_a_proof_and_a_missing_one_is_none() -> None:
    connector = MongoDocumentConnector(FakeCollection(), destination="invoices")
    assert await connector.reconcile(mongo_action()) == Unsettled(f"mongodb-lookup:{IDEMPOTENCY}")
    await connector.dispatch(mongo_action(), StopSignal("t-1"))
    assert await connector.reconcile(mongo_action()) == Found(
        f"mongodb-document:{IDEMPOTENCY}", f"mongodb-receipt:{IDEMPOTENCY}"
    )


@pytest.mark.parametrize(
    "changes",
    [{"destination": "others"}, {"version": "mongodb-document@2"}, {"args": b'"' + b"x" * 999_999 + b'"'}],
)
async def test_an_action_of_another_binding_is_not_sent(changes: dict[str, Any]) -> None:
    collection = FakeCollection()
    connector = MongoDocumentConnector(collection, destination="invoices")
    with pytest.raises(NotSentError):
        await connector.dispatch(mongo_action(**changes), StopSignal("t-1"))
    with pytest.raises(BindingError):
        await connector.reconcile(mongo_action(**changes))
    assert collection.writes == 0


async def test_nothing_is_written_once_work_should_stop() -> None:
    collection, signal = FakeCollection(), StopSignal("t-1")
    signal.set(StopCause.CANCEL_REQUESTED)
    with pytest.raises(NotSentError):
        await MongoDocumentConnector(collection, destination="invoices").dispatch(mongo_action(), signal)
    assert collection.writes == 0


async def test_another_error_of_the_database_is_in_doubt() -> None:
    collection = FakeCollection()
    collection.error = ConnectionResetError()
    with pytest.raises(ConnectionResetError):
        await MongoDocumentConnector(collection, destination="invoices").dispatch(
            mongo_action(), StopSignal("t-1")
        )
