"""One connection to a Valkey server, as the client library gives it, and what its errors mean."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from relay_service.store.base import StoreUnavailable

try:
    from valkey.asyncio.connection import ConnectionPool
    from valkey.exceptions import (
        ClusterDownError,
        OutOfMemoryError,
        ReadOnlyError,
        ResponseError,
        ValkeyError,
    )
except ImportError as error:
    raise ImportError("the Valkey store needs the extra: pip install 'sealwork[valkey]'") from error

__all__ = [
    "FAILURES",
    "DemotedError",
    "Part",
    "ReadOnlyError",
    "ResponseError",
    "Wire",
    "absence_of",
    "command",
    "exchange",
    "wires",
]

Part = bytes | str | int

# What a lost connection raises.
FAILURES: tuple[type[Exception], ...] = (ValkeyError, OSError, TimeoutError)

_CONNECT_SECONDS = 5.0
# Errors of a server that is well but cannot serve now: a full disk or memory, a script that does not
# end, a slot that is elsewhere.
_ABSENCES = (OutOfMemoryError, ClusterDownError)
# Of a server that has become a replica: the primary is elsewhere now.
_DEMOTIONS = ("READONLY", "MASTERDOWN")
_ABSENCE_WORDS = ("MISCONF", "BUSY", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK")


class Wire(Protocol):
    """What is used of a connection of the client library."""

    @property
    def is_connected(self) -> bool: ...

    async def connect(self) -> None: ...

    async def disconnect(self, nowait: bool = ...) -> None:  # noqa: FBT001
        """Ends the connection; with `nowait` at once."""

    async def send_packed_command(
        self,
        command: Sequence[bytes],
        check_health: bool = ...,  # noqa: FBT001
    ) -> None:
        """Sends what `command` made; connects first when there is no connection."""

    async def read_response(self, *, timeout: float | None = ..., disconnect_on_error: bool = ...) -> Any:
        """The next answer, None after `timeout` seconds without one."""


class DemotedError(StoreUnavailable):
    """The server at the other end is a replica now: another connection may lead to the primary."""


def absence_of(error: ResponseError) -> StoreUnavailable | None:
    """What an answer that the server cannot serve at present amounts to; None for any other error."""
    text = str(error)
    if isinstance(error, ReadOnlyError) or text.startswith(_DEMOTIONS):
        return DemotedError(text)
    if isinstance(error, _ABSENCES) or text.startswith(_ABSENCE_WORDS):
        return StoreUnavailable(text)
    return None


def wires(url: str) -> Callable[[], Wire]:
    """Makes connections to a server, none of them connected yet.

    Args:
        url: `valkey://`, `valkeys://` (TLS), `redis://`, `rediss://` or `unix://`.

    Raises:
        ValueError: the address is none of these.
    """
    pool: Any = ConnectionPool.from_url(url)
    # Whatever the address says: an idle subscription is no failure, so reading has no time limit of its
    # own, and answers are bytes in the form that is read here.
    pool.connection_kwargs |= {
        "socket_timeout": None,
        "socket_connect_timeout": _CONNECT_SECONDS,
        "protocol": 2,
        "decode_responses": False,
        "client_name": "sealwork",
    }
    if not url.startswith("unix:"):
        pool.connection_kwargs["socket_keepalive"] = True
    return cast("Callable[[], Wire]", pool.make_connection)


def command(*parts: Part) -> bytes:
    """A command in the form in which it travels."""
    pieces = [b"*%d\r\n" % len(parts)]
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        pieces.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(pieces)


async def exchange(wire: Wire, *parts: Part) -> Any:
    """Sends one command over a connection that nothing else uses, and answers its reply.

    Raises:
        StoreUnavailable: the server cannot serve at present.
        ResponseError: it refused the command.
    """
    await wire.send_packed_command([command(*parts)], check_health=False)
    try:
        return await wire.read_response(timeout=None)
    except ResponseError as error:
        absence = absence_of(error)
        if absence is not None:
            raise absence from error
        raise
