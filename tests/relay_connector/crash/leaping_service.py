"""The durable service as a process, whose clock leaps by the length of a lease with each SIGUSR1."""

import signal
import sys
from pathlib import Path
from typing import Final

from durable_service import stores, sweeper
from durable_service.store.base import StoreLimits
from durable_service.store.clock import steady_ms, wall_ms
from durable_service.store.sqlite import SqliteTaskStore

LEASE_MS: Final = 20_000

_passed_ms = [0]


class LeapingStore(SqliteTaskStore):
    def __init__(self, database: Path, *, limits: StoreLimits | None = None) -> None:
        super().__init__(
            database,
            limits=limits,
            wall=lambda: wall_ms() + _passed_ms[0],
            steady=lambda: steady_ms() + _passed_ms[0],
        )


def _leap(*_: object) -> None:
    _passed_ms[0] += LEASE_MS
    print("lets time pass", flush=True)


def main() -> None:
    from durable_service.cli import main as command

    signal.signal(signal.SIGUSR1, _leap)
    # Not names that others should import.
    setattr(stores, "SqliteTaskStore", LeapingStore)  # noqa: B010
    # Nobody tells it that the clock of the store has made a leap.
    setattr(sweeper, "_LONGEST_WAIT_MS", 100)  # noqa: B010
    sys.argv = ["durable-service", "serve", *sys.argv[1:], "--lease", f"{LEASE_MS}ms"]
    command()


if __name__ == "__main__":
    main()
