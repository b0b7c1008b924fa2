"""Proof that child processes live and die: each holds a connection to a Unix socket while it lives."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

PRELUDE = """
import os, signal, socket, subprocess, sys, time
def sign_in(path):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    connection.sendall(b"%d\\n" % os.getpid())
    return connection
"""
"""The start of a child's program; `sign_in` makes the child known."""


class Life:
    """One process that has signed in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pid: int) -> None:
        self.pid = pid
        self._reader = reader
        self._writer = writer

    def tell(self, data: bytes) -> None:
        self._writer.write(data)

    async def forget(self) -> None:
        """Hang up."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def words(self, expected: bytes, timeout: float = 10.0) -> None:
        """Wait until it has sent that."""
        async with asyncio.timeout(timeout):
            assert await self._reader.readexactly(len(expected)) == expected

    async def last_words(self, timeout: float = 10.0) -> bytes:
        """Return what it sent before it died; waits for its death."""
        words = bytearray()
        # Dying with something unread resets the connection; that is as good as its end.
        with suppress(ConnectionResetError):
            async with asyncio.timeout(timeout):
                while data := await self._reader.read(4096):
                    words += data
        return bytes(words)


class Witness:
    """Where processes sign in."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.lives: list[Life] = []
        self._arrivals: asyncio.Queue[Life] = asyncio.Queue()

    async def arrival(self, timeout: float = 10.0) -> Life:
        """Return the next process that signs in."""
        async with asyncio.timeout(timeout):
            return await self._arrivals.get()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        life = Life(reader, writer, int(await reader.readline()))
        self.lives.append(life)
        self._arrivals.put_nowait(life)


@asynccontextmanager
async def witness_at(path: Path) -> AsyncIterator[Witness]:
    witness = Witness(path)
    server = await asyncio.start_unix_server(witness.serve, path)
    try:
        yield witness
    finally:
        server.close()
        for life in witness.lives:
            await life.forget()
