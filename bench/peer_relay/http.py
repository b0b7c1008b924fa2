"""HTTP/1.1 over one kept-open loopback connection: just enough for signed JSON calls, and cheap."""

import asyncio
from collections.abc import Sequence
from typing import Self, cast

from bench.variant import VariantFailedError

_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = b"content-length:"


class Connection(asyncio.Protocol):
    """One connection that carries one exchange at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._received = bytearray()
        self._status = 0
        self._body_at = -1
        self._length = 0

    @classmethod
    async def open(cls, port: int) -> Self:
        """A connection to this loopback port."""
        loop = asyncio.get_running_loop()
        _transport, connection = await loop.create_connection(cls, "127.0.0.1", port)
        return connection

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        """Sends a whole request and returns the status and body of its answer.

        Raises:
            VariantFailedError: the server closed the connection.
        """
        if self._transport is None or self._transport.is_closing():
            raise VariantFailedError("the peer closed a connection")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A stream's transport is always this kind; uvloop's does not inherit from it.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            reason = f"the peer closed a connection: {exc or 'end of stream'}"
            self._answer.set_exception(VariantFailedError(reason))

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._body_at < 0 and not self._read_head():
            return
        if len(self._received) - self._body_at >= self._length:
            body = bytes(self._received[self._body_at : self._body_at + self._length])
            self._received.clear()
            self._body_at = -1
            if self._answer is not None and not self._answer.done():
                self._answer.set_result((self._status, body))

    def _read_head(self) -> bool:
        end = self._received.find(_END_OF_HEAD)
        if end < 0:
            return False
        head = bytes(self._received[:end])
        self._status = int(head[9:12])
        self._length = content_length(head)
        self._body_at = end + len(_END_OF_HEAD)
        return True


def content_length(head: bytes) -> int:
    """The length a response head declares; the peer's server always declares one."""
    lowered = head.lower()
    at = lowered.index(_LENGTH) + len(_LENGTH)
    return int(lowered[at:].split(b"\r\n", 1)[0])


class ConnectionPool:
    """Connections of one caller, handed out one exchange at a time."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = connections
        # Last in, first out: a caller with one call at a time stays on one warm connection.
        self._free: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()
        for connection in connections:
            self._free.put_nowait(connection)

    @classmethod
    async def open(cls, port: int, size: int = 1) -> Self:
        """A pool of this many connections to one loopback port."""
        return cls([await Connection.open(port) for _ in range(size)])

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        """As Connection.exchange, on the next free connection."""
        connection = await self._free.get()
        try:
            return await connection.exchange(request)
        finally:
            self._free.put_nowait(connection)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
