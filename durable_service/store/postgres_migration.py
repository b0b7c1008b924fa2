"""Bringing the schema to the version of this server, beside servers of other versions that are at work."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import psycopg

from durable_service.postgres.connections import OLDEST_SERVER, Connection, rows_of
from durable_service.postgres.faults import unavailable
from durable_service.store.base import StoreFault, StoreUnavailable
from durable_service.store.postgres_schema import STEPS, SchemaStep

# Of no meaning but that every server takes the same.
_LOCK: Final = 7_243_190_551_840_113
# Version by version; a server can work while `serves_from` of none is above its own version.
_VERSIONS: Final = """
CREATE TABLE IF NOT EXISTS durable_versions (
    version bigint PRIMARY KEY,
    serves_from bigint NOT NULL,
    finished boolean NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""
_STANDING: Final = """
SELECT coalesce(max(version), 0), coalesce(max(serves_from), 0),
    coalesce(max(version) FILTER (WHERE finished), 0)
FROM durable_versions
"""

_ENTRY: Final = "INSERT INTO durable_versions (version, serves_from, finished) VALUES (%s, %s, %s)"


@dataclass(frozen=True, slots=True)
class SchemaStanding:
    """Where a database stands.

    Attributes:
        version: of the newest server that has prepared it; 0 when none has.
        serves_from: the oldest version of a server that can still work on it.
        finished: up to which version nothing is left of older ones.
    """

    version: int
    serves_from: int
    finished: int


async def migrate(
    connection: Connection, steps: Sequence[SchemaStep] = STEPS, *, finish: bool = False
) -> SchemaStanding:
    """Applies what is missing, one server at a time.

    Args:
        finish: removes what older servers needed as well; they have to be gone.

    Raises:
        StoreUnavailable: the schema is too new or too old for this server, the user of the database lacks a
            right, or the database is unfit or away.
    """
    try:
        await _check_fitness(connection)
        standing = await standing_of(connection)
        _check_range(standing, steps)
        if steps[-1].version > standing.version:
            await _apply(connection, steps)
        if finish:
            for step in steps:
                await _finish(connection, step)
        return await standing_of(connection)
    except psycopg.errors.InsufficientPrivilege:
        raise StoreUnavailable(
            StoreFault.CREDENTIALS,
            "the user of the database may not create or use its tables: grant it CREATE on the schema, "
            "or run durable-service migrate as a user who may",
        ) from None
    except psycopg.Error as error:
        fault = unavailable(error)
        raise StoreUnavailable(StoreFault(fault.fault), fault.message) from None


async def standing_of(connection: Connection) -> SchemaStanding:
    """Where the database stands; raises as the client library does."""
    ((known,),) = await rows_of(connection, "SELECT to_regclass('durable_versions') IS NOT NULL", {})
    if not known:
        return SchemaStanding(0, 0, 0)
    (row,) = await rows_of(connection, _STANDING, {})
    return SchemaStanding(*row)


async def incarnation_of(connection: Connection) -> str:
    """Names the content, and the cluster of servers too: positions are transactions of that.

    Raises:
        psycopg.Error: it cannot be read.
    """
    ((incarnation,),) = await rows_of(connection, "SELECT incarnation FROM durable_content", {})
    try:
        statement = "SELECT system_identifier::text FROM pg_control_system()"
        ((cluster,),) = await rows_of(connection, statement, {})
    except psycopg.errors.InsufficientPrivilege:
        # A provider may keep it from its users. Then a copy in another cluster passes for the original.
        return str(incarnation)
    return f"{incarnation}{int(cluster):x}"


async def _check_fitness(connection: Connection) -> None:
    if connection.info.server_version < OLDEST_SERVER:
        raise StoreUnavailable(StoreFault.FAILED, "the server is older than PostgreSQL 14: upgrade it")
    ((encoding, schema, name),) = await rows_of(
        connection,
        "SELECT getdatabaseencoding()::text, current_schema()::text, current_setting('search_path')",
        {},
    )
    if encoding != "UTF8":
        raise StoreUnavailable(
            StoreFault.FAILED, f"the encoding of the database is {encoding}: it has to be UTF8"
        )
    if schema is None:
        raise StoreUnavailable(
            StoreFault.NO_DATABASE, f"none of the schemas of the search path ({name}) is there: create one"
        )


def _check_range(standing: SchemaStanding, steps: Sequence[SchemaStep]) -> None:
    ours, oldest = steps[-1].version, steps[0].version - 1
    if standing.serves_from > ours:
        raise StoreUnavailable(
            StoreFault.NEWER_FORMAT,
            f"the schema of the database is at version {standing.version} and serves versions from "
            f"{standing.serves_from}, and this server has {ours}: upgrade the service",
        )
    if standing.version < oldest:
        raise StoreUnavailable(
            StoreFault.OLDER_FORMAT,
            f"the schema of the database is at version {standing.version}, and this server can bring it on "
            f"from {oldest}: run durable-service migrate of a release in between first",
        )


async def _apply(connection: Connection, steps: Sequence[SchemaStep]) -> None:
    async with connection.transaction():
        standing = await _locked(connection)
        # Of a new database there is nothing old to remove.
        fresh = standing.version == 0
        # Another server may have been faster.
        for step in steps:
            if step.version <= standing.version:
                continue
            await connection.execute(step.pre)
            if fresh and step.post:
                await connection.execute(step.post)
            finished = fresh or not step.post
            serves_from = step.version if fresh and step.post else step.serves_from
            await connection.execute(_ENTRY, (step.version, serves_from, finished))


async def _finish(connection: Connection, step: SchemaStep) -> None:
    async with connection.transaction():
        await _locked(connection)
        rows = await rows_of(
            connection,
            "SELECT 1 FROM durable_versions WHERE version = %(version)s AND finished",
            {"version": step.version},
        )
        if rows:
            return
        await connection.execute(step.post)
        await connection.execute(
            "UPDATE durable_versions SET finished = true, serves_from = version WHERE version = %s",
            (step.version,),
        )


async def _locked(connection: Connection) -> SchemaStanding:
    """Waits for other servers that migrate, however long they take, and looks again."""
    await connection.execute("SET LOCAL statement_timeout = 0")
    await connection.execute("SET LOCAL lock_timeout = 0")
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    await connection.execute(_VERSIONS)
    return await standing_of(connection)
