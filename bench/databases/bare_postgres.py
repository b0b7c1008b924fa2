"""Compare-and-sets on PostgreSQL by itself: `python -m bench.databases.bare_postgres URL`."""

import sys
from contextlib import AsyncExitStack

from psycopg import AsyncConnection

from bench.databases.bare_loop import CONNECTIONS, MOST_LANES, PAYLOAD, serve
from service_common.event_loop import run

_TABLE = "CREATE TABLE bare (id bigint PRIMARY KEY, version bigint NOT NULL, lease bytea NOT NULL)"
_UPDATE = "UPDATE bare SET version = version + 1, lease = %s WHERE id = %s AND version = %s"


async def _loop(url: str) -> None:
    async with AsyncExitStack() as opened:
        connections = [
            await opened.enter_async_context(await AsyncConnection.connect(url, autocommit=True))
            for _ in range(CONNECTIONS)
        ]
        await connections[0].execute(_TABLE)
        for lane in range(MOST_LANES):
            await connections[0].execute("INSERT INTO bare VALUES (%s, 0, %s)", (lane, PAYLOAD))

        async def compare_and_set(lane: int, version: int) -> bool:
            # A connection carries out one statement after the other: lanes beyond the first few take turns.
            connection = connections[lane % CONNECTIONS]
            cursor = await connection.execute(_UPDATE, (PAYLOAD, lane, version), prepare=True)
            return cursor.rowcount == 1

        await serve(compare_and_set)


if __name__ == "__main__":
    run(_loop(sys.argv[1]))
