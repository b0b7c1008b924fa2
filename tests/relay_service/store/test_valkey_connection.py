"""One connection for all callers: batches, order, loss and return."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Self

import pytest

from relay_service.store.base import StoreUnavailable

from .valkey_fixture import require_valkey


@pytest.fixture(autouse=True)
def valkey_is_installed() -> None:
    require_valkey()


class ScriptedWire:
    """A connection whose other end is the test."""

    def __init__(self, *, silent: bool = False) -> None:
        self.sent: list[list[bytes]] = []
        self.is_connected = False
        self.silent = silent
        self._answers: deque[Any] = deque()
        self._news = asyncio.Event()

    async def connect(self) -> None:
        self.is_connected = True

    async def disconnect(self, nowait: bool = False) -> None:
        self.is_connected = False
        self._news.set()

    async def send_packed_command(self, command: Sequence[bytes], check_health: bool = True) -> None:
        self.sent.append(list(command))
        if not self.silent:
            self.answer(*command)

    def answer(self, *answers: Any) -> None:
        self._answers.extend(answers)
        self._news.set()

    def break_off(self) -> None:
        self.is_connected = False
        self._news.set()

    async def read_response(self, *, timeout: float | None = None, disconnect_on_error: bool = True) -> Any:
        while not self._answers:
            if not self.is_connected:
                raise ConnectionResetError("the other end is gone")
            self._news.clear()
            await self._news.wait()
        answer = self._answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Stage:
    def __init__(self, *wires: ScriptedWire, answer_seconds: float = 30.0) -> None:
        from relay_service.store.valkey_connection import CommandConnection

        self._wires = deque(wires)
        self.prepared: list[ScriptedWire] = []
        self.moves = 0
        self.connection = CommandConnection(self._next_wire, self._prepare, answer_seconds, self._note_move)

    def _note_move(self) -> None:
        self.moves += 1

    def _next_wire(self) -> ScriptedWire:
        return self._wires.popleft() if self._wires else ScriptedWire()

    async def _prepare(self, wire: Any) -> None:
        self.prepared.append(wire)

    async def __aenter__(self) -> Self:
        await self.connection.start(5)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.connection.close()


async def test_commands_of_one_turn_travel_together() -> None:
    wire = ScriptedWire()
    async with Stage(wire) as stage:
        answers = await asyncio.gather(*(stage.connection.call("ECHO", number) for number in range(50)))
    assert [len(batch) for batch in wire.sent] == [50]
    assert answers[:2] == [b"*2\r\n$4\r\nECHO\r\n$1\r\n0\r\n", b"*2\r\n$4\r\nECHO\r\n$1\r\n1\r\n"]


async def test_a_caller_that_gave_up_does_not_shift_the_answers() -> None:
    wire = ScriptedWire(silent=True)
    async with Stage(wire) as stage:
        seen: list[Any] = []
        first = asyncio.ensure_future(stage.connection.submit("FIRST", observer=seen.append))
        second = asyncio.ensure_future(stage.connection.submit("SECOND"))
        await asyncio.sleep(0)
        first.cancel()
        wire.answer(b"one", b"two")
        assert await second == b"two"
        assert seen == [b"one"]


async def test_an_error_is_for_its_caller_alone() -> None:
    from relay_service.store.valkey_wire import ResponseError

    wire = ScriptedWire(silent=True)
    async with Stage(wire) as stage:
        refused, fine = (stage.connection.submit(name) for name in ("A", "B"))
        wire.answer(ResponseError("wrong"), b"fine")
        with pytest.raises(ResponseError, match="wrong"):
            await refused
        assert await fine == b"fine"


@pytest.mark.parametrize("word", ["MISCONF disk", "BUSY script", "CLUSTERDOWN slot", "MOVED 1 host:1"])
async def test_a_server_that_cannot_serve_is_away(word: str) -> None:
    from relay_service.store.valkey_wire import ResponseError

    wire = ScriptedWire(silent=True)
    async with Stage(wire) as stage:
        answer = stage.connection.submit("A")
        wire.answer(ResponseError(word))
        with pytest.raises(StoreUnavailable, match=word.split(" ", maxsplit=1)[0]):
            await answer


@pytest.mark.parametrize("words", ["READONLY no writes", "MASTERDOWN no primary"])
async def test_a_server_that_became_a_replica_is_left(words: str) -> None:
    from relay_service.store.valkey_wire import ReadOnlyError, ResponseError

    error = ReadOnlyError(words.split(" ", 1)[1]) if words.startswith("READONLY") else ResponseError(words)
    demoted, primary = ScriptedWire(silent=True), ScriptedWire()
    async with Stage(demoted, primary) as stage:
        answer = stage.connection.submit("A")
        behind = stage.connection.submit("B")
        demoted.answer(error)
        for failed in (answer, behind):
            with pytest.raises(StoreUnavailable):
                await failed
        await stage.connection.connected(5)
        assert await stage.connection.call("C") == b"*1\r\n$1\r\nC\r\n"
        assert not demoted.is_connected
        assert stage.prepared == [demoted, primary]
        assert stage.moves == 1


async def test_a_server_that_cannot_serve_for_now_is_kept() -> None:
    from relay_service.store.valkey_wire import ResponseError

    wire = ScriptedWire(silent=True)
    async with Stage(wire) as stage:
        refused = stage.connection.submit("A")
        wire.answer(ResponseError("MISCONF disk"))
        with pytest.raises(StoreUnavailable):
            await refused
        fine = stage.connection.submit("B")
        wire.answer(b"fine")
        assert await fine == b"fine"
        assert (stage.prepared, stage.moves) == ([wire], 0)


async def test_what_waits_fails_when_the_connection_is_lost_and_a_new_one_comes() -> None:
    lost, found = ScriptedWire(silent=True), ScriptedWire()
    async with Stage(lost, found) as stage:
        waiting = stage.connection.submit("FIRST")
        await asyncio.sleep(0)
        lost.break_off()
        with pytest.raises(StoreUnavailable):
            await waiting
        with pytest.raises(StoreUnavailable):
            stage.connection.submit("AT ONCE")
        await stage.connection.connected(5)
        assert await stage.connection.call("AGAIN") == b"*1\r\n$5\r\nAGAIN\r\n"
        assert stage.prepared == [lost, found]


async def test_a_silent_server_is_given_up() -> None:
    silent = ScriptedWire(silent=True)
    async with Stage(silent, answer_seconds=0.05) as stage:
        with pytest.raises(StoreUnavailable):
            await stage.connection.call("ANYBODY")


async def test_no_server_at_all() -> None:
    from relay_service.store.valkey import ValkeyRoutingStore

    store = ValkeyRoutingStore("unix:///nowhere/at/all.sock")
    with pytest.raises(StoreUnavailable, match="no connection to the server: ConnectionError"):
        await store.start(0.3)
    await store.close()


def test_addresses_and_prefixes_that_cannot_be() -> None:
    from relay_service.store.valkey import ValkeyRoutingStore

    with pytest.raises(ValueError, match="scheme"):
        ValkeyRoutingStore("http://localhost")
    with pytest.raises(ValueError, match="brace"):
        ValkeyRoutingStore("valkey://localhost", prefix="a{b}")
