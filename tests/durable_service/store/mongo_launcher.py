"""Runs the test server that speaks MongoDB's protocol, with a clock that a test can hold.

The first argument is a file of eight bytes: the server's time in epoch milliseconds, or 0 for the machine's.
Everything that the server answers with, and that `$$NOW` is, comes from it.
"""

import datetime as dt
import mmap
import sys
import types
from pathlib import Path
from typing import Any


class _SameInstances(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, dt.datetime)


def held_clock(file: Path) -> types.ModuleType:
    """The module `datetime`, except that it is then what the file says."""
    with file.open("r+b") as opened:
        told = mmap.mmap(opened.fileno(), 8)

    class HeldDatetime(dt.datetime, metaclass=_SameInstances):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            now_ms = int.from_bytes(told[:8], "little")
            if not now_ms:
                return dt.datetime.now(tz)
            start = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
            return start + dt.timedelta(milliseconds=now_ms)

    module = types.ModuleType("held_datetime")
    vars(module).update({name: getattr(dt, name) for name in dir(dt) if name[:2] != "__"})
    vars(module)["datetime"] = HeldDatetime
    return module


def main() -> int:
    from secantus import aggregate, cli, commands  # type: ignore[import-untyped]

    module = held_clock(Path(sys.argv[1]))
    for part in (aggregate, commands):
        vars(part)["_dt"] = module
    status = cli.main(sys.argv[2:])
    return int(status or 0)


if __name__ == "__main__":
    sys.exit(main())
