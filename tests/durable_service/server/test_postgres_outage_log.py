"""What a service says of a PostgreSQL server that is away: that it is, and nothing that the library says."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import grpc
import orjson
import pytest
from structlog.testing import capture_logs

from service_common.clocks import SystemClock
from tests.durable_service.durable_fixture import creation, durable_process, signer_of
from tests.durable_service.raw_client import Party, Refusal
from tests.durable_service.store.postgres_fixture import PostgresServer, require_postgres
from tests.harness.waiting import eventually

PASSWORD = "very-secret"
AWAY = "the database cannot be reached"
LOST = "a connection to the database was lost"


class Time:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def library() -> Iterator[tuple[logging.Logger, Time]]:
    """A logger of the library's kind, and the time by which it is spoken for."""
    require_postgres()
    from durable_service.postgres.library_log import LibraryLog

    time = Time()
    logger = logging.getLogger("a library")
    speaker = LibraryLog(time)
    logger.addFilter(speaker)
    yield logger, time
    logger.removeFilter(speaker)


def test_each_problem_is_said_once_a_minute_in_words_of_ours(
    library: tuple[logging.Logger, Time], caplog: pytest.LogCaptureFixture
) -> None:
    import psycopg

    logger, time = library
    refused = psycopg.OperationalError('connection to server at "db.example", port 5432 failed: refused')
    password = psycopg.OperationalError('FATAL:  password authentication failed for user "tester"')
    with capture_logs() as said:
        for now in (0.0, 59.9, 60.0):
            time.now = now
            logger.warning("error connecting in %r: %s", "pool-1", refused)
            logger.warning("error connecting in %r: %s", "pool-1", password)
            logger.warning("discarding closed connection: %s", "host=db.example user=tester")
            logger.warning("reconnection attempt in pool %r failed after %s sec", "pool-1", 1.0)
            logger.warning("of nothing")
    problems = [AWAY, "the database refuses the user or the password", LOST]
    assert [(line["event"], line["problem"]) for line in said] == [
        ("database_trouble", problem) for problem in problems + problems
    ]
    assert caplog.records == []


async def created(party: Party, task_id: str) -> bool:
    try:
        await party.call("CreateTask", creation(task_id))
    except grpc.aio.AioRpcError as error:
        if Refusal.of_error(error).reason != "STORE_UNAVAILABLE":
            raise
        return False
    return True


@pytest.mark.process
async def test_an_outage(tmp_path: Path) -> None:
    require_postgres()
    database = await asyncio.to_thread(PostgresServer)
    with database:
        store = database.url(password=PASSWORD)
        async with durable_process(tmp_path, store=store) as (process, address):
            async with grpc.aio.insecure_channel(address) as channel:
                alice = Party(channel, "alice", signer_of("alice"), SystemClock().now_ms)
                assert await created(alice, "before")
                await asyncio.to_thread(database.stop)
                for number in range(4):
                    assert not await created(alice, f"away-{number}")
                await asyncio.to_thread(database.start)
                await eventually(lambda: created(alice, "after"), 30)
            process.terminate()
            await process.wait()
    text = "\n".join(process.lines)
    lines = [orjson.loads(line) for line in process.stderr]
    assert PASSWORD not in text
    assert f"{database.port}" not in text
    assert not [line for line in lines if str(line["logger"]).startswith("psycopg")]
    problems = [line["problem"] for line in lines if line["event"] == "database_trouble"]
    # Once each, however often it was tried.
    assert AWAY in problems
    assert len(problems) == len(set(problems)) <= 3
