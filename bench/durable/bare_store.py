"""The SQLite store with nothing around it: `python -m bench.durable.bare_store FOLDER LANES`.

Each line of standard input is a number of seconds, for which every lane writes entries into the journal of a
task of its own. The answer is one line of JSON.
"""

import asyncio
import sys
from pathlib import Path
from time import perf_counter
from uuid import uuid4

import orjson

from bench.durable.parties import TENANT
from bench.durable.serving import fill
from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.claims import Claimed, ClaimRequest, claim
from durable_service.core.definition import TaskKey
from durable_service.core.model import Holder
from durable_service.store.base import EventDraft, TaskStore
from durable_service.store.sqlite import SqliteTaskStore
from service_common.event_loop import run, tune_garbage_collector

_LEASE_MS = 3_600_000
_TOLD_LATENCIES = 1_000


class Lane:
    """A task that is held, and one writer of its journal."""

    def __init__(self, store: TaskStore, key: TaskKey, holder: Holder) -> None:
        self._store = store
        self._key = key
        self._holder = holder

    @classmethod
    async def open(cls, store: TaskStore, key: TaskKey) -> "Lane":
        """Claims the task."""
        request = ClaimRequest(f"worker-of-{key.task_id}", uuid4().hex, _LEASE_MS)
        decision = await store.update(key, lambda record, now_ms: claim(record, request, now_ms))
        assert isinstance(decision.answer, Claimed)
        return cls(store, key, Holder(request.worker_id, decision.answer.lease.fence))

    async def write(self, until: float) -> list[float]:
        """Writes one entry after the other until then; their latencies in milliseconds."""
        latencies = []
        while (started := perf_counter()) < until:
            draft = EventDraft(uuid4().hex, "bench.step", CanonicalJson('{"step":1}'))
            await self._store.append(self._key, self._holder, draft)
            latencies.append((perf_counter() - started) * 1000)
        return latencies


async def _serve(folder: Path, lanes: int) -> None:
    store = SqliteTaskStore(folder / "tasks.db")
    await fill(store, lanes)
    opened = [await Lane.open(store, key) for key in await _keys(store, lanes)]
    tune_garbage_collector()
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        started = perf_counter()
        written = await asyncio.gather(*(lane.write(started + float(line)) for lane in opened))
        elapsed = perf_counter() - started
        latencies = [each for lane in written for each in lane]
        told = latencies[:: max(1, len(latencies) // _TOLD_LATENCIES)]
        answer = {"operations": len(latencies), "elapsed": elapsed, "latencies": told}
        print(orjson.dumps(answer).decode(), flush=True)
    await store.close()


async def _keys(store: TaskStore, number: int) -> list[TaskKey]:
    page = await store.changes(TENANT, 0, number)
    return [record.key for _position, record in page.records]


if __name__ == "__main__":
    run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
