"""The outside world: a file that effects are written to, each with its idempotency key."""

import os
from pathlib import Path

from durable_service.client import Action, StopSignal
from durable_service.client.connectors import Absent, Found
from durable_service.client.connectors.base import Finding

from .fuse import Fuse

VERSION = "effects@1"


class EffectsFile:
    """A connector. Its look-up may say that nothing happened only once the sender is known to be dead."""

    version = VERSION

    def __init__(self, path: Path, fuse: Fuse) -> None:
        self._path = path
        self._fuse = fuse

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
        return result_of(action.idempotency_key)

    async def reconcile(self, action: Action) -> Finding:
        self._fuse.reach("lookup:before")
        found = action.idempotency_key in {line.split()[2] for line in effects_in(self._path)}
        self._fuse.reach("lookup:after")
        evidence = f"file:{action.id}:{action.dispatch_fence}"
        return Found(result_of(action.idempotency_key), evidence) if found else Absent(evidence)


def result_of(key: str) -> str:
    return f"result:{key[-12:]}"


def effects_in(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
