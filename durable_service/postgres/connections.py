"""Connections to one database: few, bounded in every wait, and made anew when the database was away."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import AsyncConnection
from psycopg.adapt import AdaptersMap
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from durable_service.postgres.faults import breaks_connections, unavailable
from durable_service.postgres.library_log import speak_for_the_library

Connection: TypeAlias = AsyncConnection[tuple[Any, ...]]
Row: TypeAlias = tuple[Any, ...]
Parameters: TypeAlias = Mapping[str, object]

# More than this adds nothing: the processors of the database are what is short.
CONNECTIONS: Final = 8
# Releases before lack parts of the schema.
OLDEST_SERVER: Final = 140_000
_WAIT_SECONDS: Final = 5.0
# While the database is away nobody waits long to learn it; each call tries to connect anew.
_WAIT_WHILE_AWAY_SECONDS: Final = 0.5
# A server that hangs, or a way that swallows everything, lets nothing be heard at all: then the end of the
# statement's own time is not heard of either. Callers give up after ten seconds.
_ANSWER_SECONDS: Final = 8.0
_CONNECT_SECONDS: Final = 5
# Of several servers the first may be the one that vanished; the others are asked after it.
_CONNECT_SECONDS_OF_SEVERAL: Final = 2
_RECONNECT_SECONDS: Final = 1.0
_LIFETIME_SECONDS: Final = 3_600.0
_IDLE_SECONDS: Final = 300.0
# A statement that hangs must not hang its caller, and a process that hangs must not hang the others.
_SETTINGS: Final = {
    "statement_timeout": "15s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "15s",
    # Statements here are short, and compiling one takes longer than running it.
    "jit": "off",
    "client_encoding": "UTF8",
    # A default of the server that may be stricter; every write here checks versions itself.
    "default_transaction_isolation": "read committed",
}
_CONFIGURE: Final = "SELECT " + ", ".join(
    f"set_config('{name}', '{value}', false)" for name, value in _SETTINGS.items()
)
# A peer that vanished without a word is noticed within half a minute.
_ALIVE: Final = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
# What a server says by itself, at the connecting and with every answer after a change.
_READ_ONLY_SIGNS: Final = ("default_transaction_read_only", "in_hot_standby")
_ADAPTERS: Final = AdaptersMap(psycopg.adapters)
# Every number has one type, or each size of a number would be a prepared statement of its own.
_ADAPTERS.register_dumper(int, Int8Dumper)
_ADAPTERS.register_dumper(int, Int8BinaryDumper)


def connection_text(url: str, name: str) -> str:
    """What the client library connects by; what the URL says itself stands.

    Args:
        name: as it is shown among the sessions of the server.

    Raises:
        psycopg.ProgrammingError: the URL cannot be read.
    """
    known = psycopg.conninfo.conninfo_to_dict(url)
    several = "," in str(known.get("host") or known.get("hostaddr") or "")
    defaults: dict[str, Any] = {
        "application_name": name,
        "target_session_attrs": "read-write",
        "connect_timeout": _CONNECT_SECONDS_OF_SEVERAL if several else _CONNECT_SECONDS,
        **_ALIVE,
    }
    return psycopg.conninfo.make_conninfo("", **{**defaults, **known})


async def configure(connection: Connection) -> None:
    """Sets what every connection has; called on a new one, which is closed when that fails.

    Raises:
        psycopg.Error: the server takes no writes, whatever the URL asked for; or it is away again.
    """
    try:
        await connection.execute(_CONFIGURE)
        refuse_read_only(connection)
    except BaseException:
        await connection.close()
        raise
    connection.prepare_threshold = 1
    connection.prepared_max = 200


async def connect(text: str) -> Connection:
    """A connection apart from all others, which commits each statement.

    Raises:
        psycopg.Error: it cannot be had.
    """
    connection = await AsyncConnection.connect(text, autocommit=True, context=_ADAPTERS)
    await configure(connection)
    return connection


def refuse_read_only(connection: Connection) -> None:
    """Checks by what the server last said that it takes writes.

    One that does not may be a primary no more, and what it shows may be behind what the new one confirmed.

    Raises:
        psycopg.Error: it takes none.
    """
    if any(connection.info.parameter_status(sign) == "on" for sign in _READ_ONLY_SIGNS):
        raise psycopg.errors.ReadOnlySqlTransaction


def cut(connection: Connection) -> None:
    """Ends a connection under whoever waits for its server.

    The library would first ask the server to cancel, and wait for it to say that it has.
    """
    if not connection.closed:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)


class Connections:
    """A pool of connections that commit each statement.

    What fails is a `DatabaseUnavailable`, after seconds at the latest, and at once while the database is
    known to be away. Whoever asks then makes a new attempt, so it is back as soon as the database is.

    Attributes:
        on_distrust: called when the server turns out to be no server to write to any more.
    """

    on_distrust: Callable[[], None] | None = None

    def __init__(self, text: str, size: int = CONNECTIONS) -> None:
        speak_for_the_library()
        self._pool = AsyncConnectionPool[Connection](
            text,
            kwargs={"autocommit": True, "context": _ADAPTERS},
            configure=self._configure,
            min_size=1,
            max_size=size,
            open=False,
            timeout=_WAIT_SECONDS,
            max_lifetime=_LIFETIME_SECONDS,
            max_idle=_IDLE_SECONDS,
            reconnect_timeout=_RECONNECT_SECONDS,
            reconnect_failed=self._failed,
            num_workers=2,
        )
        self._away = False
        # What ended the connections that there were, until there is one again.
        self._why_away: psycopg.Error | None = None
        # Connections made before this instant are not used any more.
        self._distrusted = 0.0
        self._made: dict[Connection, float] = {}
        self._used: set[Connection] = set()

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for one or a few statements.

        Raises:
            DatabaseUnavailable: none is to be had, or the server refused; a conflict of two transactions is
                left as the library raises it.
        """
        requests = _cancel_requests()
        connection = await self._acquire()
        given_up = asyncio.get_running_loop().call_later(_ANSWER_SECONDS, self._give_up, connection)
        try:
            yield connection
        except psycopg.Error as error:
            if breaks_connections(error) or connection.closed:
                self._distrust(error)
                await connection.close()
            raise
        finally:
            given_up.cancel()
            self._used.discard(connection)
            if not self._is_trusted(connection):
                self._made.pop(connection, None)
                await connection.close()
            await self._pool.putconn(connection)
        if _cancel_requests() > requests:
            # The library waits in a way that forgets a cancellation which comes together with an answer
            # (before Python 3.12); a task that works for ever would never end.
            raise asyncio.CancelledError

    def _distrust(self, error: psycopg.Error) -> None:
        """Uses no connection again that is open now: its server has stepped down or restarted."""
        self._distrusted = time.monotonic()
        self._why_away = error
        # Nobody may come for those that wait in the pool. Those at work are left when they are done.
        for connection in self._made.keys() - self._used:
            cut(connection)
        if self.on_distrust is not None:
            self.on_distrust()

    async def ask(self, statement: str, parameters: Parameters) -> Sequence[Row]:
        """All rows of a reading statement, which is asked again on another connection when one has broken.

        Raises:
            DatabaseUnavailable: the database is away or refuses.
        """
        try:
            try:
                return await self._ask(statement, parameters)
            except psycopg.Error as error:
                # One that was idle while the server restarted says so at its first use, as does one whose
                # server was the primary until now.
                lost = isinstance(error, psycopg.OperationalError) and error.sqlstate is None
                if not lost and not breaks_connections(error):
                    raise
            return await self._ask(statement, parameters)
        except psycopg.Error as error:
            raise unavailable(error) from None

    async def _ask(self, statement: str, parameters: Parameters) -> Sequence[Row]:
        async with self.connection() as connection:
            rows = await rows_of(connection, statement, parameters)
            refuse_read_only(connection)
            return rows

    async def _acquire(self) -> Connection:
        wait_seconds = _WAIT_WHILE_AWAY_SECONDS if self._away else _WAIT_SECONDS
        while True:
            try:
                connection = await self._pool.getconn(wait_seconds)
            except PoolTimeout as error:
                self._away = True
                raise unavailable(self._why_away or error) from None
            except psycopg.Error as error:
                raise unavailable(error) from None
            if self._is_trusted(connection):
                self._used.add(connection)
                return connection
            self._made.pop(connection, None)
            await connection.close()
            await self._pool.putconn(connection)

    def _is_trusted(self, connection: Connection) -> bool:
        return not connection.closed and self._made.get(connection, 0.0) > self._distrusted

    async def _configure(self, connection: Connection) -> None:
        await configure(connection)
        self._made = {known: at for known, at in self._made.items() if not known.closed}
        self._made[connection] = time.monotonic()
        self._away = False
        self._why_away = None

    def _give_up(self, connection: Connection) -> None:
        self._away = True
        cut(connection)

    async def _failed(self, _pool: AsyncConnectionPool[Any]) -> None:
        self._away = True


def _cancel_requests() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def rows_of(connection: Connection, statement: str, parameters: Parameters) -> Sequence[Row]:
    """All rows of a statement, in the binary form of the protocol."""
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(statement, parameters)
        return await cursor.fetchall()
