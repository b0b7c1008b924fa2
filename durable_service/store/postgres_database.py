"""The database of one store: questions, single writes, and the latest instant that this process has seen."""

from collections.abc import Mapping, Sequence
from typing import Final

import psycopg

from durable_service.core.claims import claim_id_reused
from durable_service.core.definition import TaskKey
from durable_service.postgres.connections import Connections, Row, rows_of
from durable_service.postgres.faults import DatabaseUnavailable, is_conflict, unavailable
from durable_service.store import postgres_queries as queries
from durable_service.store.base import StoreFault, StoreUnavailable
from durable_service.store.postgres_rows import LOAD, Loaded, loaded_of
from durable_service.store.postgres_statement import Write

# How far apart the notes of the time are that all processes on a database write down together.
NOTE_MS: Final = 2_000
# Each claim is of one task.
_CLAIMS: Final = "durable_claims_pkey"


class PostgresDatabase:
    """Statements with the time of the server in them.

    Attributes:
        seen_ms: no answer is earlier than this.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._closed = False
        self.seen_ms = 0

    async def ask(self, statement: str, values: Mapping[str, object] | None = None) -> Sequence[Row]:
        """All rows that answer a reading statement.

        Raises:
            StoreUnavailable: the database is away or refuses.
        """
        if self._closed:
            raise StoreUnavailable(StoreFault.CLOSED, "the store is closed")
        try:
            return await self._connections.ask(statement, {"seen_ms": self.seen_ms, **(values or {})})
        except DatabaseUnavailable as error:
            raise store_unavailable(error) from None

    async def load(self, key: TaskKey, event_id: str | None = None) -> Loaded:
        """A task, with the instant of the answer; raises as `ask`."""
        values = {"tenant_id": key.tenant_id, "task_id": key.task_id, "event_id": event_id}
        (row,) = await self.ask(LOAD, values)
        loaded = loaded_of(key, row)
        self.seen_ms = max(self.seen_ms, loaded.now_ms)
        return loaded

    async def write(self, write: Write) -> bool:
        """Whether the write has happened; False when another one was faster.

        Raises:
            StoreUnavailable: as `ask`, and then it may have happened.
            DomainError: REQUEST_ID_REUSED, when it grants a task by a claim that was granted another one.
        """
        if self._closed:
            raise StoreUnavailable(StoreFault.CLOSED, "the store is closed")
        try:
            async with self._connections.connection() as connection:
                return bool(await rows_of(connection, *write))
        except DatabaseUnavailable as error:
            raise store_unavailable(error) from None
        except psycopg.errors.UniqueViolation as error:
            if error.diag.constraint_name != _CLAIMS:
                raise store_unavailable(unavailable(error)) from None
            raise claim_id_reused() from None
        except psycopg.Error as error:
            if is_conflict(error):
                return False
            raise store_unavailable(unavailable(error)) from None

    async def now_ms(self) -> int:
        ((now_ms,),) = await self.ask(queries.NOW)
        self.seen_ms = max(self.seen_ms, now_ms)
        return self.seen_ms

    async def note_now(self) -> None:
        """Writes down how late it is, for all processes and for the next server of the database."""
        await self.ask(queries.NOTE, {"every_ms": NOTE_MS // 2})

    async def close(self) -> None:
        self._closed = True
        await self._connections.close()


def store_unavailable(error: DatabaseUnavailable) -> StoreUnavailable:
    return StoreUnavailable(StoreFault(error.fault), error.message)
