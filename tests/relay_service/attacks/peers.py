"""Connections that come from other addresses of this machine, as from other peers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_CHUNK_BYTES = 65_536


@asynccontextmanager
async def from_address(source: str, target: str) -> AsyncIterator[str]:
    """Forwards to a server from a loopback address of its own; yields where to connect to."""
    host, _, port = target.rpartition(":")
    links: set[asyncio.Task[None]] = set()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        links.add(task)
        up_reader, up_writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
        try:
            await asyncio.gather(_pipe(reader, up_writer), _pipe(up_reader, writer))
        finally:
            links.discard(task)
            writer.close()
            up_writer.close()

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()
