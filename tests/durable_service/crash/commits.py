"""Points around the writes of any store: where its process dies, and what it tells of leases before that."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from durable_service import stores
from durable_service.blobs.base import BlobStore
from durable_service.core.step import Decision
from durable_service.store.base import TaskStore

from .fuse import Fuse, say

Opened = Callable[..., Any]


def watch_commits(fuse: Fuse, *, tell_leases: bool = False) -> None:
    """Whatever stores this process will open have a point before each write and one after it."""
    open_tasks: Opened = stores._open_tasks
    open_blobs: Opened = stores._open_blobs

    async def opened(*arguments: Any) -> TaskStore:
        tasks: TaskStore = await open_tasks(*arguments)
        for name in ("create", "update", "append"):
            _watch(tasks, name, fuse, tell_leases=tell_leases)
        return tasks

    async def opened_blobs(*arguments: Any) -> BlobStore:
        blobs: BlobStore = await open_blobs(*arguments)
        _watch_bytes(blobs, fuse)
        return blobs

    # Not names that others should import.
    setattr(stores, "_open_tasks", opened)  # noqa: B010
    setattr(stores, "_open_blobs", opened_blobs)  # noqa: B010


def _watch(tasks: TaskStore, name: str, fuse: Fuse, *, tell_leases: bool) -> None:
    make = getattr(tasks, name)

    async def watched(*arguments: Any, **named: Any) -> Any:
        fuse.reach("commit:before")
        decision = await make(*arguments, **named)
        if decision.written:
            # As safe as the store makes it, and not yet answered.
            if tell_leases:
                _tell_lease(decision)
            for event in decision.events:
                fuse.reach(f"commit:{event.type}")
            fuse.reach("commit:after")
        return decision

    setattr(tasks, name, watched)


def _watch_bytes(blobs: BlobStore, fuse: Fuse) -> None:
    put = blobs.put

    async def watched(key: str, data: bytes) -> None:
        fuse.reach("bytes:before")
        await put(key, data)
        # No task refers to them yet.
        fuse.reach("bytes:after")

    setattr(blobs, "put", watched)  # noqa: B010 - a method


def _tell_lease(decision: Decision[Any]) -> None:
    record = decision.record
    if record.lease is not None:
        facts = (record.key.task_id, record.lease.fence, record.lease.worker_id, record.lease.expires_at_ms)
        say("lease", json.dumps(facts))


async def told_leases(lines: Callable[[], list[str]]) -> list[tuple[str, int, str, int]]:
    """What processes said of leases: task, fence, worker and the end by the store's clock."""
    said = await asyncio.to_thread(lines)
    # A line may be cut by what another thread writes at the same time, or by the end of the process.
    return [tuple(json.loads(line[6:])) for line in said if line.startswith("lease [") and line.endswith("]")]
