"""A local HTTP server that answers as a test tells it to, over a real socket."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
DONE = b"data: [DONE]\n\n"


@dataclass
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class ModelStub:
    """Keeps what it saw, and says when a client has gone."""

    def __init__(self) -> None:
        self.requests: list[Seen] = []
        self.answering = asyncio.Event()
        self.disconnected = asyncio.Event()
        self.answer: Callable[[Seen, asyncio.StreamWriter], Awaitable[None]] = stay_silent
        self.port = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone = None
        try:
            seen = await _read_request(reader)
            self.requests.append(seen)
            gone = asyncio.create_task(self._watch(reader))
            await self.answer(seen, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.disconnected.set()
        finally:
            if gone is not None:
                gone.cancel()
            writer.close()

    async def stream_then_hang(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        """Say one word and nothing more until the client leaves."""
        writer.write(SSE_HEAD + event("Once"))
        await writer.drain()
        self.answering.set()
        await self.disconnected.wait()

    async def stream_for_ever(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE_HEAD)
        while not self.disconnected.is_set():
            writer.write(event("word " * 100))
            await writer.drain()

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            await reader.read()
        self.disconnected.set()


@asynccontextmanager
async def model_stub() -> AsyncIterator[ModelStub]:
    stub = ModelStub()
    server = await asyncio.start_server(stub.serve, "127.0.0.1", 0)
    stub.port = server.sockets[0].getsockname()[1]
    try:
        yield stub
    finally:
        stub.disconnected.set()
        server.close()
        await server.wait_closed()


def event(content: str | None = None, finish: str | None = None) -> bytes:
    """One streamed piece of a completion."""
    delta = {} if content is None else {"content": content}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def streamed(*pieces: bytes) -> Callable[[Seen, asyncio.StreamWriter], Awaitable[None]]:
    """Answer with an event stream of these pieces, each in a write of its own."""

    async def answer(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE_HEAD)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return answer


def answered(
    status: int, body: bytes = b"", **headers: str
) -> Callable[[Seen, asyncio.StreamWriter], Awaitable[None]]:
    """Answer with a whole body."""
    lines = [f"HTTP/1.1 {status} Word", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]

    async def answer(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    return answer


async def stay_silent(seen: Seen, writer: asyncio.StreamWriter) -> None:
    """Close without a word."""


async def _read_request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = head[0].split(" ")
    fields = (line.split(": ", 1) for line in head[1:] if line)
    headers = {name.lower(): value for name, value in fields}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(method, path, headers, body)
