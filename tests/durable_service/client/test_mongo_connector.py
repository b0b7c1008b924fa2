"""The document connector against a real server, and over a network that loses what the server says."""

import asyncio
import gc
import socket
import warnings
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from durable_service.client import ActionInput, NotClaimed, RunEnd, TaskContext, Worker
from durable_service.client.actions import Action, action_of
from durable_service.client.connectors import Found, MongoDocumentConnector, Unsettled
from durable_service.client.connectors.mongodb_document import BindingError
from durable_service.client.errors import NotSentError
from durable_service.client.stop_signal import StopCause, StopSignal
from durable_service.core.states import ActionState
from tests.durable_service.client.played_service import HASH, IDEMPOTENCY, action
from tests.durable_service.client.real_service import mail, real_service
from tests.durable_service.store.mongo_fixture import MongoServer, fresh_database
from tests.harness.fault_proxy import FaultProxy, fault_proxy

pymongo = pytest.importorskip("pymongo")

pytestmark = pytest.mark.process

RESULT = f"mongodb-document:{IDEMPOTENCY}"
RECEIPT = f"mongodb-receipt:{IDEMPOTENCY}"
LOOKUP = f"mongodb-lookup:{IDEMPOTENCY}"
SEND = ActionInput("send", "invoices", {"text": "hello"})


def wanted(args: bytes = b'{"text":"hello"}', prepared_hash: str = HASH, **changes: Any) -> Action:
    message = action("EXECUTING")
    message.destination = changes.get("destination", "invoices")
    message.connector_version = "mongodb-document@1"
    message.args, message.prepared_hash = args, prepared_hash
    return action_of(message)


def signal() -> StopSignal:
    return StopSignal("t-1")


@asynccontextmanager
async def collection_of(url: str, **options: Any) -> AsyncIterator[Any]:
    """The collection as its owner has to set it up."""
    from pymongo import AsyncMongoClient, WriteConcern
    from pymongo.read_concern import ReadConcern

    async with AsyncMongoClient[dict[str, Any]](url, **options) as client:
        yield client.get_default_database().get_collection(
            "invoices", write_concern=WriteConcern("majority", j=True), read_concern=ReadConcern("majority")
        )


@pytest.fixture(autouse=True)
async def _abandoned_sockets() -> AsyncIterator[None]:
    """Collects sockets that the driver was connecting when a client was closed: it leaves them open."""
    yield
    # Those who were connecting have been told to end, and do.
    await asyncio.sleep(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
async def invoices(mongo_server: MongoServer) -> AsyncIterator[Any]:
    async with collection_of(fresh_database(mongo_server)) as collection:
        yield collection


@pytest.fixture
def connector(invoices: Any) -> MongoDocumentConnector:
    return MongoDocumentConnector(invoices, destination="invoices")


async def test_a_document_is_written_once(connector: MongoDocumentConnector, invoices: Any) -> None:
    for _ in range(2):
        assert await connector.dispatch(wanted(), signal()) == RESULT
    assert await invoices.find().to_list() == [
        {"_id": IDEMPOTENCY, "preparedHash": HASH, "value": {"text": "hello"}}
    ]


async def test_a_race_of_dispatchers(mongo_server: MongoServer) -> None:
    url = fresh_database(mongo_server)
    async with AsyncExitStack() as clients:
        connectors = [
            MongoDocumentConnector(
                await clients.enter_async_context(collection_of(url)), destination="invoices"
            )
            for _ in range(4)
        ]
        # Each twice, so that they meet within a connection pool and between processes.
        dispatches = [each.dispatch(wanted(), signal()) for each in connectors * 2]
        assert await asyncio.gather(*dispatches) == [RESULT] * 8
        assert await connectors[0]._collection.count_documents({}) == 1  # type: ignore[attr-defined]


async def test_a_race_of_two_actions_for_one_key(connector: MongoDocumentConnector, invoices: Any) -> None:
    hashes = [f"sha256:{number}" * 8 for number in range(6)]
    answers = await asyncio.gather(
        *(connector.dispatch(wanted(prepared_hash=each), signal()) for each in hashes), return_exceptions=True
    )
    winners = [each for each, answer in zip(hashes, answers, strict=True) if answer == RESULT]
    assert len(winners) == 1
    assert sum(isinstance(answer, BindingError) for answer in answers) == 5
    assert [each["preparedHash"] for each in await invoices.find().to_list()] == winners


async def test_the_document_of_another_action(connector: MongoDocumentConnector) -> None:
    await connector.dispatch(wanted(), signal())
    other = wanted(b'{"text":"other"}', "sha256:other")
    with pytest.raises(BindingError):
        await connector.dispatch(other, signal())
    assert await connector.reconcile(other) == Unsettled(LOOKUP)
    assert await connector.reconcile(wanted()) == Found(RESULT, RECEIPT)


async def test_what_is_not_found_is_not_absent(connector: MongoDocumentConnector) -> None:
    assert await connector.reconcile(wanted()) == Unsettled(LOOKUP)


async def test_the_largest_arguments(connector: MongoDocumentConnector, invoices: Any) -> None:
    with pytest.raises(NotSentError):
        await connector.dispatch(wanted(b'"' + b"x" * 999_999 + b'"'), signal())
    assert await invoices.count_documents({}) == 0
    assert await connector.dispatch(wanted(b'"' + b"x" * 999_998 + b'"'), signal()) == RESULT
    assert await connector.reconcile(wanted(b'"' + b"x" * 999_998 + b'"')) == Found(RESULT, RECEIPT)


async def test_nothing_is_written_once_work_should_stop(
    connector: MongoDocumentConnector, invoices: Any
) -> None:
    stopped = signal()
    stopped.set(StopCause.CANCEL_REQUESTED)
    with pytest.raises(NotSentError):
        await connector.dispatch(wanted(), stopped)
    assert await invoices.count_documents({}) == 0


@pytest.mark.parametrize(
    ("args", "value"),
    [
        (b'{"$set":{"a.b":[{"$gt":1}]},"":null}', {"$set": {"a.b": [{"$gt": 1}]}, "": None}),
        (b"[9007199254740991,0.5]", [9_007_199_254_740_991, 0.5]),
        (b"null", None),
        (b'"$field"', "$field"),
    ],
)
async def test_arguments_arrive_as_they_are(
    connector: MongoDocumentConnector, invoices: Any, args: bytes, value: Any
) -> None:
    await connector.dispatch(wanted(args), signal())
    assert (await invoices.find_one())["value"] == value


async def test_arguments_that_the_database_cannot_hold(
    connector: MongoDocumentConnector, invoices: Any
) -> None:
    with pytest.raises(NotSentError):
        await connector.dispatch(wanted(b'{"a\\u0000b":1}'), signal())
    assert await invoices.count_documents({}) == 0


@asynccontextmanager
async def sending_through(server: MongoServer) -> AsyncIterator[tuple[FaultProxy, Any, Worker, list[Any]]]:
    """A worker whose action goes through a proxy, after the connection was used and works."""
    database = fresh_database(server).partition("?")[0].rpartition("/")[2]
    async with (
        fault_proxy("127.0.0.1", server.port) as proxy,
        collection_of(f"mongodb://127.0.0.1:{server.port}/{database}") as near,
        collection_of(
            f"mongodb://{proxy.address}/{database}?directConnection=true",
            socketTimeoutMS=500,
            connectTimeoutMS=500,
            serverSelectionTimeoutMS=500,
        ) as far,
        real_service() as service,
    ):
        await far.find_one()
        connector = MongoDocumentConnector(far, destination="invoices")
        runs: list[str] = []

        async def handler(context: TaskContext) -> str:
            runs.append(context.task.id)
            return await context.execute(SEND, connector)

        await (await service.client()).tasks.create(mail())
        client = await service.client("worker")
        async with Worker(client, {"mail@1": handler}) as worker:
            yield proxy, near, worker, [connector, runs]


async def recovered(worker: Worker, connector: MongoDocumentConnector) -> Sequence[Action]:
    settled = await worker.recover("t-1", [connector])
    assert not isinstance(settled, NotClaimed)
    return settled


async def test_an_answer_that_got_lost(mongo_server: MongoServer) -> None:
    async with sending_through(mongo_server) as (proxy, near, worker, (connector, runs)):
        proxy.half_open("down")
        report = await worker.run_task("t-1")
        assert not isinstance(report, NotClaimed)
        assert report.end is RunEnd.RECOVERY_REQUIRED
        # It was carried out, and nobody here knows.
        assert await near.count_documents({}) == 1
        await proxy.restore()
        refused = await worker.run_task("t-1")
        assert isinstance(refused, NotClaimed)
        (settled,) = await recovered(worker, connector)
        assert (settled.state, settled.result_ref) == (
            ActionState.CONFIRMED,
            f"mongodb-document:{settled.idempotency_key}",
        )
        again = await worker.run_task("t-1")
        assert not isinstance(again, NotClaimed)
        assert again.end is RunEnd.COMPLETED
        assert await near.find().to_list() == [
            {
                "_id": settled.idempotency_key,
                "preparedHash": settled.prepared_hash,
                "value": {"text": "hello"},
            }
        ]
        assert runs == ["t-1", "t-1"]


async def test_a_request_that_got_lost(mongo_server: MongoServer) -> None:
    async with sending_through(mongo_server) as (proxy, near, worker, (connector, _)):
        proxy.cut()
        report = await worker.run_task("t-1")
        assert not isinstance(report, NotClaimed)
        assert report.end is RunEnd.RECOVERY_REQUIRED
        await proxy.restore()
        # Nothing is there, which proves nothing: it stays unknown until somebody brings evidence.
        (open_still,) = await recovered(worker, connector)
        assert open_still.state is ActionState.UNKNOWN
        assert await near.count_documents({}) == 0
        assert isinstance(await worker.run_task("t-1"), NotClaimed)


async def test_connections_that_are_reset(mongo_server: MongoServer) -> None:
    async with sending_through(mongo_server) as (proxy, near, worker, _):
        await proxy.reset_all()
        # The driver tries once more, over another connection, and the server knows the attempt.
        report = await worker.run_task("t-1")
        assert not isinstance(report, NotClaimed)
        assert report.end is RunEnd.COMPLETED
        assert await near.count_documents({}) == 1


async def test_a_server_that_cannot_be_reached(mongo_server: MongoServer) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"mongodb://127.0.0.1:{unused.getsockname()[1]}/none?directConnection=true"
        with pytest.raises(pymongo.errors.ServerSelectionTimeoutError):
            async with collection_of(url, serverSelectionTimeoutMS=200) as collection:
                # Nothing is known of what an earlier dispatch has done, so it is no failure to send.
                await MongoDocumentConnector(collection, destination="invoices").dispatch(wanted(), signal())
