"""A relay on a machine whose wall clock is wrong: `python -m ...skewed_relay OFFSET_MS serve ...`.

It is the `relay-service` command itself; all that differs is what its process takes for the time of day. gRPC
below it keeps the right time, since a wrong one there is wrong for both ends of its own reckoning.
"""

import sys

from relay_service.cli import main as relay_service
from service_common.clocks import SystemClock


def set_clock_wrong(offset_ms: int) -> None:
    """Shifts the wall clock of this process; clocks that only ever go on are left alone."""
    right = SystemClock.now_ms

    def now_ms(self: SystemClock) -> int:
        return right(self) + offset_ms

    SystemClock.now_ms = now_ms  # type: ignore[method-assign]


def main() -> None:
    set_clock_wrong(int(sys.argv.pop(1)))
    relay_service()


if __name__ == "__main__":
    main()
