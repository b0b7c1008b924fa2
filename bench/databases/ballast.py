"""Fills an empty PostgreSQL database with tasks that wait: `python -m bench.databases.ballast URL TASKS`.

Through the service it would take longer than all that is measured. The rows are the same: the statement is
that of the store, and only the commits are fewer.
"""

import asyncio
import sys

from psycopg import AsyncConnection

from bench.durable.serving import creation
from durable_service.core.admission import create
from durable_service.postgres.connections import connect, connection_text
from durable_service.store.base import StoreLimits
from durable_service.store.postgres import PostgresTaskStore
from durable_service.store.postgres_statement import Write
from durable_service.store.postgres_writes import insertion
from service_common.clocks import SystemClock

_BATCH = 1_000
# The number that no process draws: whoever follows the changes sees the tasks as those of another one.
_WRITER = 0


async def _fill(url: str, tasks: int) -> None:
    # Makes the tables.
    await (await PostgresTaskStore.open(url)).close()
    async with await connect(connection_text(url, "bench")) as connection:
        for first in range(0, tasks, _BATCH):
            await _insert(connection, [_write(number) for number in range(first, min(tasks, first + _BATCH))])
        # As the server does by itself after a while.
        await connection.execute("ANALYZE")
    print("filled", flush=True)


def _write(number: int) -> Write:
    limits = StoreLimits()
    decision = create(None, creation(number), SystemClock().now_ms(), limits.task_bytes)
    return insertion(decision.record, decision.events, _WRITER, limits)


async def _insert(connection: AsyncConnection[tuple[object, ...]], batch: list[Write]) -> None:
    # All of them are one statement with other values.
    statement = batch[0][0].encode()
    async with connection.transaction(), connection.cursor() as cursor:
        await cursor.executemany(statement, [values for _, values in batch])


if __name__ == "__main__":
    asyncio.run(_fill(sys.argv[1], int(sys.argv[2])))
