"""The blob store on PostgreSQL passes its contract, and what is special about it."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest

from durable_service.blobs.contract import CONTRACT_BYTES, KEY, OTHER_KEY, START_MS, BlobStoreContract, reason
from durable_service.core.errors import DomainError, Reason
from durable_service.postgres_stores import migrate_postgres
from tests.durable_service.store.postgres_fixture import (
    USER,
    PostgresServer,
    fresh_database,
    postgres_server,
    require_postgres,
)
from tests.harness.waiting import eventually

psycopg = pytest.importorskip("psycopg")

from durable_service.blobs.postgres import PostgresBlobStore  # noqa: E402 - an extra

__all__ = ["postgres_server"]

pytestmark = pytest.mark.process

# The table's clock, standing until it is moved on.
STANDING_CLOCK = f"""
CREATE TABLE test_clock (now_ms bigint NOT NULL);
INSERT INTO test_clock VALUES ({START_MS});
CREATE OR REPLACE FUNCTION durable_blob_now_ms() RETURNS bigint LANGUAGE sql VOLATILE
RETURN (SELECT now_ms FROM test_clock);
"""


class PostgresBlobHarness:
    """A store on a database of its own."""

    blobs: PostgresBlobStore

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.url = fresh_database(server)

    async def start(self) -> None:
        self.blobs = await PostgresBlobStore.open(self.url, CONTRACT_BYTES)
        self.execute(STANDING_CLOCK)

    async def advance(self, milliseconds: int) -> None:
        self.execute(f"UPDATE test_clock SET now_ms = now_ms + {milliseconds}")

    async def reopen(self) -> bool:
        await self.blobs.close()
        self.blobs = await PostgresBlobStore.open(self.url, CONTRACT_BYTES)
        return True

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
async def blob_harness(postgres_server: PostgresServer) -> AsyncIterator[PostgresBlobHarness]:
    harness = PostgresBlobHarness(postgres_server)
    await harness.start()
    yield harness
    await harness.blobs.close()


class TestPostgresBlobStore(BlobStoreContract):
    pass


@pytest.mark.parametrize("damage", ["data = 'hellp'", "hash = ''", "data = ''"])
async def test_damage_is_noticed(blob_harness: PostgresBlobHarness, damage: str) -> None:
    await blob_harness.blobs.put(KEY, b"hello")
    blob_harness.execute(f"UPDATE durable_blobs SET {damage}")
    assert await reason(blob_harness.blobs.get(KEY)) is Reason.BLOB_CORRUPT
    assert await reason(blob_harness.blobs.put(KEY, b"hello")) is Reason.BLOB_CORRUPT


async def test_the_largest_bytes(postgres_server: PostgresServer) -> None:
    blobs = await PostgresBlobStore.open(fresh_database(postgres_server))
    data = hashlib.sha256(b"seed").digest() * 250_000
    await blobs.put(KEY, data)
    await blobs.put(KEY, data)
    assert await blobs.get(KEY) == data
    assert await reason(blobs.put(KEY, b"x" + data)) is Reason.ARTIFACT_TOO_LARGE
    await blobs.close()


async def test_bytes_are_not_written_again(blob_harness: PostgresBlobHarness) -> None:
    blobs = await PostgresBlobStore.open(blob_harness.url)
    await blobs.put(KEY, b"\x00" * 1_000_000)
    chunks = """
        SELECT count(*), sum(octet_length(chunk_data)) FROM pg_toast.pg_toast_{}
    """.format(blob_harness.execute("SELECT 'durable_blobs'::regclass::oid")[0][0])
    first = blob_harness.execute(chunks)
    # Uncompressed, and outside the row.
    assert first[0][1] == 1_000_000
    await blob_harness.advance(1)
    await blobs.put(KEY, b"\x00" * 1_000_000)
    assert blob_harness.execute(chunks) == first
    await blobs.close()


async def test_a_row_that_another_transaction_holds(blob_harness: PostgresBlobHarness) -> None:
    blobs = blob_harness.blobs
    await blobs.put(KEY, b"hello")
    await blob_harness.advance(10)
    async with await psycopg.AsyncConnection.connect(blob_harness.url) as renewing:
        await renewing.execute("UPDATE durable_blobs SET put_at_ms = put_at_ms + 10")
        collecting = asyncio.ensure_future(blobs.delete_if_before(KEY, START_MS + 10))
        await waiting_for_a_lock(blob_harness)
        await renewing.commit()
        # It was old when the statement began, and is not any more when its turn comes.
        assert await collecting is False
        await renewing.execute("DELETE FROM durable_blobs")
        putting = asyncio.ensure_future(blobs.put(KEY, b"other"))
        await waiting_for_a_lock(blob_harness)
        await renewing.commit()
        await putting
    assert await blobs.get(KEY) == b"other"


async def waiting_for_a_lock(harness: PostgresBlobHarness) -> None:
    await eventually(
        lambda: harness.execute(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
    )


async def test_pages_of_old_keys(blob_harness: PostgresBlobHarness) -> None:
    blob_harness.execute(
        f"INSERT INTO durable_blobs SELECT lpad(to_hex(n), 64, '0'), {START_MS} + n / 700, '', ''"
        " FROM generate_series(1, 2500) AS n"
    )
    keys = [key async for key in blob_harness.blobs.keys_before(START_MS + 3)]
    assert keys == [f"{number:064x}" for number in range(1, 2_100)]


async def test_questions_use_indexes(blob_harness: PostgresBlobHarness) -> None:
    blob_harness.execute(
        f"INSERT INTO durable_blobs SELECT lpad(to_hex(n), 64, '0'), {START_MS} + n, '', ''"
        " FROM generate_series(1, 2000) AS n; ANALYZE durable_blobs"
    )
    plan = blob_harness.execute(
        "EXPLAIN SELECT put_at_ms, key FROM durable_blobs WHERE put_at_ms < 1 AND (put_at_ms, key) > (-1, '')"
        " ORDER BY put_at_ms, key LIMIT 1000"
    )
    text = " ".join(str(row[0]) for row in plan)
    assert "Index Only Scan using durable_blobs_by_age" in text
    assert "Sort" not in text


async def test_many_processes_may_open_it_at_once(postgres_server: PostgresServer) -> None:
    url = fresh_database(postgres_server)
    stores = await asyncio.gather(*(PostgresBlobStore.open(url) for _ in range(8)))
    puts = (store.put(key, b"x") for store in stores for key in (KEY, OTHER_KEY))
    await asyncio.gather(*puts)
    for store in stores:
        assert await store.get(KEY) == b"x"
        await store.close()


async def test_whoever_may_not_make_tables_uses_those_that_are_there(postgres_server: PostgresServer) -> None:
    url = fresh_database(postgres_server)
    schema = url.rpartition("%3D")[2]
    limited = url.replace(f"{USER}@", "blob_user@")
    postgres_server.execute(f"CREATE ROLE blob_user LOGIN; GRANT USAGE ON SCHEMA {schema} TO blob_user")
    assert await reason(PostgresBlobStore.open(limited)) is Reason.STORE_UNAVAILABLE
    await migrate_postgres(url, finish=False)
    postgres_server.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.durable_blobs TO blob_user")
    blobs = await PostgresBlobStore.open(limited)
    await blobs.put(KEY, b"hello")
    assert await blobs.get(KEY) == b"hello"
    await blobs.close()


async def test_a_database_that_is_away() -> None:
    refusal = await reason(PostgresBlobStore.open("postgresql://127.0.0.1:1/none"))
    assert refusal is Reason.STORE_UNAVAILABLE


async def test_a_kill_loses_nothing() -> None:
    require_postgres()
    with PostgresServer() as server:
        blobs = await PostgresBlobStore.open(server.url())
        await blobs.put(KEY, b"hello")
        server.kill()
        assert await reason(blobs.get(KEY)) is Reason.STORE_UNAVAILABLE
        await asyncio.to_thread(server.start)
        await eventually(lambda: answers(blobs, KEY))
        assert await blobs.get(KEY) == b"hello"
        assert await reason(blobs.put(KEY, b"other")) is Reason.BLOB_COLLISION
        await blobs.close()


async def answers(blobs: PostgresBlobStore, key: str) -> bool:
    """The connections are back; a call that comes a moment too early is refused."""
    try:
        return await blobs.get(key) is not None
    except DomainError:
        return False
