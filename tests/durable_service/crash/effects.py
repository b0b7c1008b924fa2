"""The outside world: a file that effects are written to, each with its idempotency key."""

import asyncio
import os
from pathlib import Path

from durable_service.client import Action, StopSignal
from durable_service.client.connectors import Absent, Found
from durable_service.client.connectors.base import Finding

from .fuse import Fuse, say

VERSION = "effects@1"


class EffectsFile:
    """A connector. Its look-up may say that nothing happened only once the sender is known to be dead."""

    version = VERSION

    def __init__(self, path: Path, fuse: Fuse, gate: Path | None = None) -> None:
        """Write to `path`; with a gate, wait for it between an effect and the word of it."""
        self._path = path
        self._fuse = fuse
        self._gate = gate

    async def dispatch(self, action: Action, signal: StopSignal) -> str:
        self._fuse.reach("effect:before")
        line = f"{action.task_id} {action.id} {action.idempotency_key}\n".encode()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._fuse.reach("effect:after")
        if self._gate is not None:
            await passed(self._gate)
        return result_of(action.idempotency_key)

    async def reconcile(self, action: Action) -> Finding:
        self._fuse.reach("lookup:before")
        found = action.idempotency_key in {line.split()[2] for line in effects_in(self._path)}
        self._fuse.reach("lookup:after")
        evidence = f"file:{action.id}:{action.dispatch_fence}"
        return Found(result_of(action.idempotency_key), evidence) if found else Absent(evidence)


async def passed(gate: Path) -> None:
    """Waits until another process has made the file."""
    say("at the gate")
    while not os.path.exists(gate):  # noqa: ASYNC110, ASYNC240, PTH110 - no process tells of it
        await asyncio.sleep(0.01)


def result_of(key: str) -> str:
    return f"result:{key[-12:]}"


def effects_in(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
