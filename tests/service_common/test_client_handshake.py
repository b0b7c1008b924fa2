"""A stream that ends while its hello is drawn up, which may take calls of its own."""

import asyncio
from typing import Any

import grpc
import pytest

from service_common import client_handshake
from service_common.client_session_types import Hello
from tests.harness.waiting import eventually
from tests.service_common.scripted_server import scripted_server
from tests.service_common.session_subject import PLANE, advance_until, connecting, refusal


@pytest.mark.parametrize("status", ["none", "draining"])
async def test_a_stream_that_ends_before_its_hello_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    opened: list[Any] = []
    greet = client_handshake._greet

    async def watched(call: Any, *arguments: Any, **named: Any) -> Any:
        opened.append(call)
        return await greet(call, *arguments, **named)

    monkeypatch.setattr(client_handshake, "_greet", watched)
    async with scripted_server(PLANE) as server, connecting(server) as subject:
        asked, drawn_up = asyncio.Event(), asyncio.Event()
        hello = subject.recorder.hello

        async def slowly() -> Hello:
            asked.set()
            await drawn_up.wait()
            return hello()

        monkeypatch.setattr(subject.recorder, "hello", slowly)
        first = await server.stream()
        await first.challenge()
        await asyncio.wait_for(asked.wait(), 5)
        first.end(None if status == "none" else refusal("SERVER_DRAINING", grpc.StatusCode.UNAVAILABLE))
        await eventually(opened[0].done, 5, "the end to be known")
        drawn_up.set()
        await advance_until(subject.clock, lambda: len(server.streams) == 2)
        await server.streams[1].welcome()
        assert (await subject.client.opened()).end is None
