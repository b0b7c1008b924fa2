"""A process that does nothing but compare-and-sets, each lane on a row of its own.

It says a line when it is ready. Each line that it is told is a number of lanes and how often each of them
writes; the answer is one line of JSON with the latencies in milliseconds.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter

import orjson

# Sets a row to its next version, unless it has another than this one.
CompareAndSet = Callable[[int, int], Awaitable[bool]]
# As long as what a renewal writes.
PAYLOAD = b"x" * 200
MOST_LANES = 256
# Connections, as many as a process of the service has.
CONNECTIONS = 8


async def serve(compare_and_set: CompareAndSet) -> None:
    """Answers until the end of standard input."""
    versions = [0] * MOST_LANES
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        lanes, turns = map(int, line.split())
        started = perf_counter()
        written = await asyncio.gather(
            *(_in_turn(compare_and_set, versions, lane, turns) for lane in range(lanes))
        )
        elapsed = perf_counter() - started
        answer = {"latencies": [each for lane in written for each in lane], "elapsed": elapsed}
        print(orjson.dumps(answer).decode(), flush=True)


async def _in_turn(compare_and_set: CompareAndSet, versions: list[int], lane: int, turns: int) -> list[float]:
    latencies = []
    for _ in range(turns):
        started = perf_counter()
        if not await compare_and_set(lane, versions[lane]):
            raise SystemExit(f"lane {lane} was not at version {versions[lane]}")
        versions[lane] += 1
        latencies.append((perf_counter() - started) * 1000)
    return latencies
