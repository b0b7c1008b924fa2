import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Self

import pytest

from bench.peer_relay.http import Connection, ConnectionPool, content_length
from bench.variant import VariantFailedError

REQUEST = b"GET / HTTP/1.1\r\ncontent-length: 0\r\n\r\n"


class ScriptedServer:
    """Answers each request with the next scripted list of fragments; an empty list closes the connection."""

    def __init__(self, answers: Sequence[Sequence[bytes]]) -> None:
        self.port = 0
        self.connections = 0
        self._answers = iter(answers)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_reason: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        async for fragments in self._scripted(reader):
            for fragment in fragments:
                writer.write(fragment)
                await writer.drain()
                # Lets the fragment leave on its own.
                await asyncio.sleep(0)
            if not fragments:
                break
        writer.close()

    async def _scripted(self, reader: asyncio.StreamReader) -> AsyncIterator[Sequence[bytes]]:
        while True:
            try:
                await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                return
            yield next(self._answers)


def answer(body: bytes, status: int = 200) -> bytes:
    return b"HTTP/1.1 %d Whatever\r\nContent-Length: %d\r\nx: y\r\n\r\n%s" % (status, len(body), body)


async def test_exchanges_follow_one_another_on_one_connection() -> None:
    async with ScriptedServer([[answer(b"one")], [answer(b"", 409)], [answer(b"three")]]) as server:
        connection = await Connection.open(server.port)
        assert await connection.exchange(REQUEST) == (200, b"one")
        assert await connection.exchange(REQUEST) == (409, b"")
        assert await connection.exchange(REQUEST) == (200, b"three")
        assert server.connections == 1
        connection.close()


async def test_an_answer_may_arrive_in_any_fragments() -> None:
    whole = answer(b"x" * 200_000)
    fragments = [whole[:5], whole[5:20], whole[20:58], whole[58:59], whole[59:100_000], whole[100_000:]]
    async with ScriptedServer([fragments, [answer(b"next")]]) as server:
        connection = await Connection.open(server.port)
        assert await connection.exchange(REQUEST) == (200, b"x" * 200_000)
        assert await connection.exchange(REQUEST) == (200, b"next")
        connection.close()


async def test_a_connection_closed_before_the_answer_is_a_failure() -> None:
    async with ScriptedServer([[]]) as server:
        connection = await Connection.open(server.port)
        with pytest.raises(VariantFailedError, match="closed a connection"):
            await connection.exchange(REQUEST)
        with pytest.raises(VariantFailedError, match="closed a connection"):
            await connection.exchange(REQUEST)


async def test_a_pool_keeps_a_lone_caller_on_one_connection_and_spreads_simultaneous_calls() -> None:
    async with ScriptedServer([[answer(b"a")]] * 5) as server:
        pool = await ConnectionPool.open(server.port, 3)
        found = await asyncio.gather(*(pool.exchange(REQUEST) for _ in range(5)))
        assert found == [(200, b"a")] * 5
        assert server.connections == 3
        pool.close()


def test_the_length_is_found_whatever_its_spelling() -> None:
    assert content_length(b"HTTP/1.1 200 OK\r\nDate: x\r\nConTent-Length:  42\r\nA: b") == 42
