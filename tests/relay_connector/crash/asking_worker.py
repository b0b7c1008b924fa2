"""A worker as a process: it asks one question for each task, and dies at a step that it is told."""

import argparse
import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from durable_service.client import Client, PrincipalKey, TaskContext, Worker
from durable_service.client.lease_calls import LeaseCalls
from durable_service.client.records import Records
from relay_connector import RelayConnector, read_answer
from relay_connector.giving import Giving
from relay_service.client import GeneratePayload, Keys, Site
from relay_service.client.site import JobHandle
from service_common.clocks import SystemClock
from tests.durable_service.crash.fuse import Fuse, say

DRIVER = "ask"
# Reckoned from the task's creation, so that every run asks the same question.
DEADLINE_MS = 600_000


class AheadClock(SystemClock):
    """A wall clock that is ahead: what is long to wait for is over by it."""

    def __init__(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


async def main() -> None:
    options = parsed()
    fuse = Fuse(*options.fuse) if options.fuse[0] else Fuse("", options.fuse[1])
    watch(fuse)
    keys = Keys.load(options.site_keys)
    principal = PrincipalKey.load(options.key)
    async with contextlib.AsyncExitStack() as ends:
        site = await ends.enter_async_context(
            Site(options.relay, site_id="demo", keys=keys, connect_timeout=30)
        )
        client = await ends.enter_async_context(Client(options.address, principal_id="worker", key=principal))
        relay = RelayConnector(site, again=options.again, clock=AheadClock(options.ahead_ms))

        async def handle(context: TaskContext) -> str:
            say("runs", context.task.id)
            question = relay.ask(
                "ask",
                GeneratePayload(context.task.id),
                owner="alice",
                deadline_at_ms=context.task.created_at_ms + DEADLINE_MS,
            )
            kept = await context.execute(question, relay)
            answer = await read_answer(context.records, kept)
            say("answered", context.task.id, answer.disposition, answer.why or answer.content)
            return kept

        worker = Worker(client, {f"{DRIVER}@1": handle}, slots=8, connectors=[relay])
        say("ready")
        await worker.run()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--relay", required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--site-keys", type=Path, required=True)
    parser.add_argument(
        "--fuse", type=lambda text: (text.split("#")[0], int(text.split("#")[1])), default=("", 0)
    )
    parser.add_argument("--ahead-ms", type=int, default=0)
    parser.add_argument("--again", action="store_true")
    return parser.parse_args()


def watch(fuse: Fuse) -> None:
    """Puts a point before and after every step of a question, here and nowhere in the product."""
    around(Site, "enqueue", "enqueue", fuse, then=lambda handle: told_of_seal(handle, fuse))
    around(Giving, "admit", "give", fuse)
    around(JobHandle, "result", "result", fuse)
    around(Records, "artifact", "artifact", fuse)
    around(Site, "settle", "settle", fuse)
    make = LeaseCalls._make

    async def watched(self: LeaseCalls, method: Any, request: Any, arm: str) -> Any:
        name = str(method.path).rpartition("/")[2]
        fuse.reach(f"{name}:before")
        answer = await make(self, method, request, arm)
        fuse.reach(f"{name}:after")
        return answer

    setattr(LeaseCalls, "_make", watched)  # noqa: B010


def around(
    owner: type, method: str, point: str, fuse: Fuse, then: Callable[[Any], object] | None = None
) -> None:
    inner: Callable[..., Awaitable[Any]] = getattr(owner, method)

    async def watched(*args: Any, **options: Any) -> Any:
        fuse.reach(f"{point}:before")
        answer = await inner(*args, **options)
        fuse.reach(f"{point}:after")
        if then is not None:
            then(answer)
        return answer

    setattr(owner, method, watched)


_watching: set[asyncio.Task[None]] = set()


def told_of_seal(handle: JobHandle, fuse: Fuse) -> None:
    async def wait() -> None:
        await handle.sealed()
        say("sealed", handle.id)
        fuse.reach("sealed")

    task = asyncio.ensure_future(wait())
    _watching.add(task)
    task.add_done_callback(_watching.discard)


if __name__ == "__main__":
    asyncio.run(main())
