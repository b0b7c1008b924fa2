"""Calls of one stream side by side: how many, which wait for which, and what waits for all."""

import asyncio
from functools import partial

import pytest

from service_common.sessions.concurrent_calls import ConcurrentCalls
from tests.harness.waiting import eventually


class Calls:
    """Calls that end when the test says so; `log` tells what began and ended, in order."""

    def __init__(self, most: int = 3) -> None:
        self.under_way = ConcurrentCalls(most)
        self.log: list[str] = []
        self._gates: dict[str, asyncio.Event] = {}

    async def start(self, name: str, *keys: str, alone: bool = False) -> None:
        gate = self._gates[name] = asyncio.Event()

        async def call() -> None:
            self.log.append(f"+{name}")
            await gate.wait()
            self.log.append(f"-{name}")

        await self.under_way.start(None if alone else frozenset(keys), call)

    async def end(self, *names: str) -> None:
        for name in names:
            self._gates[name].set()
            await eventually(partial(self._has, f"-{name}"))

    def _has(self, word: str) -> bool:
        return word in self.log


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_calls_run_side_by_side() -> None:
    calls = Calls()
    for name in ("a", "b", "c"):
        await calls.start(name, name)
    await calls.under_way.begun()
    assert calls.log == ["+a", "+b", "+c"]
    await calls.end("c", "a", "b")
    assert calls.log[3:] == ["-c", "-a", "-b"]


async def test_no_more_than_there_is_room_for() -> None:
    calls = Calls(most=2)
    await calls.start("a", "1")
    await calls.start("b", "2")
    third = asyncio.create_task(calls.start("c", "3"))
    await turns()
    assert calls.log == ["+a", "+b"]
    await calls.end("b")
    await third
    await calls.under_way.begun()
    assert calls.log == ["+a", "+b", "-b", "+c"]
    await calls.end("a", "c")


async def test_calls_with_a_key_in_common_keep_their_order() -> None:
    calls = Calls()
    await calls.start("a", "job-1", "job-2")
    second = asyncio.create_task(calls.start("b", "job-2", "job-3"))
    await turns()
    assert calls.log == ["+a"]
    await calls.end("a")
    await second
    await calls.end("b")
    assert calls.log == ["+a", "-a", "+b", "-b"]


async def test_a_call_without_keys_of_its_own_goes_alone() -> None:
    calls = Calls()
    await calls.start("a", "1")
    alone = asyncio.create_task(calls.start("b", alone=True))
    await turns()
    assert calls.log == ["+a"]
    await calls.end("a")
    await alone
    behind = asyncio.create_task(calls.start("c", "3"))
    await turns()
    assert calls.log == ["+a", "-a", "+b"]
    await calls.end("b")
    await behind
    await calls.end("c")


async def test_what_waits_for_keys_waits_for_these_alone() -> None:
    calls = Calls()
    await calls.start("a", "1")
    await calls.start("b", "2")
    await calls.under_way.settled(frozenset({"3"}))
    waiting = asyncio.create_task(calls.under_way.settled(frozenset({"2"})))
    await turns()
    assert not waiting.done()
    await calls.end("b")
    await waiting
    everything = asyncio.create_task(calls.under_way.settled())
    await turns()
    assert not everything.done()
    await calls.end("a")
    await everything


async def test_a_call_that_has_nothing_to_wait_for_is_done_before_what_follows() -> None:
    under_way, log = ConcurrentCalls(16), []

    async def call(name: str) -> None:
        log.append(name)

    for name in ("a", "b"):
        await under_way.start(frozenset({name}), lambda name=name: call(name))  # type: ignore[misc]
    await under_way.begun()
    assert log == ["a", "b"]


async def test_whoever_stops_waiting_leaves_the_others_waiting() -> None:
    calls = Calls()
    await calls.start("a", "1")
    first, second = (asyncio.create_task(calls.under_way.settled()) for _ in range(2))
    await turns()
    first.cancel()
    await turns()
    assert not second.done()
    await calls.end("a")
    await second


async def test_with_room_for_one_a_call_is_carried_out_at_once() -> None:
    under_way, log = ConcurrentCalls(1), []

    async def call() -> None:
        log.append(asyncio.current_task())

    await under_way.start(frozenset({"1"}), call)
    assert log == [asyncio.current_task()]
    await under_way.settled()


async def test_a_call_that_fails_makes_room(capsys: pytest.CaptureFixture[str]) -> None:
    under_way = ConcurrentCalls(2)

    async def fail() -> None:
        raise LookupError

    await under_way.start(frozenset({"1"}), fail)
    await under_way.settled()
    assert "call_on_stream_failed" in capsys.readouterr().out
