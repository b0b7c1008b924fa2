"""Bytes in a table of a PostgreSQL database: durable, for any number of processes."""

import hashlib
from collections.abc import AsyncIterator
from typing import Final, Self

import psycopg

from durable_service.blobs.base import checked_data, checked_key, collision, corrupt
from durable_service.core.limits import BLOB_BYTES
from durable_service.postgres.connections import Connection, Connections, connect, connection_text, rows_of
from durable_service.postgres.faults import unavailable

# Of no meaning but that every process takes the same, and no other work does.
_LOCK: Final = 7_243_190_551_840_114
_MADE: Final = """
SELECT to_regclass('durable_blobs') IS NOT NULL AND to_regproc('durable_blob_now_ms') IS NOT NULL
"""
_TABLE: Final = """
CREATE OR REPLACE FUNCTION durable_blob_now_ms() RETURNS bigint LANGUAGE sql VOLATILE
RETURN floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;

CREATE TABLE IF NOT EXISTS durable_blobs (
    key text COLLATE "C" PRIMARY KEY,
    put_at_ms bigint NOT NULL,
    hash bytea NOT NULL,
    data bytea NOT NULL
);
-- Artifacts are mostly compressed already, and a row that was put again keeps its bytes where they are.
ALTER TABLE durable_blobs ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE INDEX IF NOT EXISTS durable_blobs_by_age ON durable_blobs (put_at_ms, key);
"""
# One statement: it takes the key, or waits for whoever has it and makes the same bytes young again. Whether
# they are the same is decided under the lock of the row, and other bytes are never written over.
_PUT: Final = """
INSERT INTO durable_blobs AS kept (key, put_at_ms, hash, data)
VALUES (%(key)s, durable_blob_now_ms(), %(hash)s, %(data)s)
ON CONFLICT (key) DO UPDATE SET put_at_ms = greatest(kept.put_at_ms, excluded.put_at_ms)
WHERE kept.hash = excluded.hash AND kept.data = excluded.data
RETURNING 1
"""
_GET: Final = "SELECT data, hash FROM durable_blobs WHERE key = %(key)s"
_DELETE: Final = "DELETE FROM durable_blobs WHERE key = %(key)s RETURNING 1"
# Puts that wait for the row, and puts that it waits for, are seen: the condition is looked at again then.
_DELETE_IF_BEFORE: Final = """
DELETE FROM durable_blobs WHERE key = %(key)s AND put_at_ms < %(before_ms)s RETURNING 1
"""
_KEYS_BEFORE: Final = """
SELECT put_at_ms, key FROM durable_blobs
WHERE put_at_ms < %(before_ms)s AND (put_at_ms, key) > (%(after_ms)s, %(after_key)s)
ORDER BY put_at_ms, key LIMIT %(limit)s
"""
_KEYS_AT_ONCE: Final = 1_000
# Bytes are rarely put or read at once by many; each connection costs the server a process.
_CONNECTIONS: Final = 4


async def make_blob_table(connection: Connection) -> None:
    """Makes the table where it is missing; several processes may do so at once.

    Raises:
        psycopg.Error: it cannot be made.
    """
    ((made,),) = await rows_of(connection, _MADE, {})
    if made:
        # Whoever may only use the table need not be allowed to make it.
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        await connection.execute(_TABLE)


class PostgresBlobStore:
    """A store beside the tasks. What it has answered is committed."""

    def __init__(self, connections: Connections, limit_bytes: int = BLOB_BYTES) -> None:
        """Keep bytes in a table that is there, over connections that are open; see `open`."""
        self._connections = connections
        self._limit_bytes = limit_bytes

    @classmethod
    async def open(cls, url: str, limit_bytes: int = BLOB_BYTES) -> Self:
        """A store on the database of a URL; its table is made when it is not there.

        Raises:
            DomainError: STORE_UNAVAILABLE; the text says why.
        """
        try:
            text = connection_text(url, "sealwork-blobs")
            connection = await connect(text)
            try:
                await make_blob_table(connection)
            finally:
                await connection.close()
        except psycopg.Error as error:
            raise unavailable(error) from None
        connections = Connections(text, _CONNECTIONS)
        await connections.open()
        return cls(connections, limit_bytes)

    @property
    def durable(self) -> bool:
        return True

    async def put(self, key: str, data: bytes) -> None:
        checked_key(key)
        row = {"key": key, "hash": _hash(data), "data": bytes(checked_data(data, self._limit_bytes))}
        while not await self._connections.ask(_PUT, row):
            if await self.get(key) is not None:
                raise collision()
            # They were removed since: now there is room.

    async def get(self, key: str) -> bytes | None:
        rows = await self._connections.ask(_GET, {"key": checked_key(key)})
        if not rows:
            return None
        ((data, kept_hash),) = rows
        if _hash(data) != kept_hash:
            raise corrupt()
        return bytes(data)

    async def delete(self, key: str) -> None:
        await self._connections.ask(_DELETE, {"key": checked_key(key)})

    async def keys_before(self, put_before_ms: int) -> AsyncIterator[str]:
        after: tuple[int, str] | None = (-1, "")
        while after is not None:
            page = {"before_ms": put_before_ms, "after_ms": after[0], "after_key": after[1]}
            rows = await self._connections.ask(_KEYS_BEFORE, {**page, "limit": _KEYS_AT_ONCE})
            for _, key in rows:
                yield key
            after = (rows[-1][0], rows[-1][1]) if len(rows) == _KEYS_AT_ONCE else None

    async def delete_if_before(self, key: str, put_before_ms: int) -> bool:
        asked = {"key": checked_key(key), "before_ms": put_before_ms}
        return bool(await self._connections.ask(_DELETE_IF_BEFORE, asked))

    async def close(self) -> None:
        await self._connections.close()


def _hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
