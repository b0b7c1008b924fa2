"""A process of its own that works on a store until it is killed. It says what it was answered."""

import asyncio
import sys
from functools import partial
from pathlib import Path

from durable_service.core import claims
from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.model import Holder, TaskRecord
from durable_service.core.step import Decision
from durable_service.store.base import EventDraft, StoreUnavailable
from durable_service.store.contract.scene import creation, key
from durable_service.store.sqlite import SqliteTaskStore


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def claimed(request: claims.ClaimRequest, record: TaskRecord, now_ms: int) -> Decision[claims.ClaimAnswer]:
    return claims.claim(record, request, now_ms)


async def hold(database: Path) -> None:
    """Holds the file until its input ends."""
    store = SqliteTaskStore(database)
    say("open")
    await asyncio.to_thread(sys.stdin.read)
    await store.close()


async def work(database: Path) -> None:
    """Creates, claims and appends in eight lanes, for ever."""
    store = SqliteTaskStore(database)

    async def lane(number: int) -> None:
        count = 0
        while True:
            name = f"task-{number}-{count}"
            await store.create(creation(name))
            say("created", name)
            request = claims.ClaimRequest("worker", f"claim-{name}", 3_600_000)
            await store.update(key(name), partial(claimed, request))
            say("claimed", name)
            for place in range(3):
                draft = EventDraft(f"event-{place}", "note", CanonicalJson("1"))
                await store.append(key(name), Holder("worker", 1), draft)
                say("appended", name, place)
            count += 1

    await asyncio.gather(*(lane(number) for number in range(8)))


def main() -> int:
    command, database = sys.argv[1], Path(sys.argv[2])
    try:
        asyncio.run({"hold": hold, "work": work}[command](database))
    except StoreUnavailable as error:
        say("refused", error.fault, error.message)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
