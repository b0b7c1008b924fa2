"""CPU time of a server that works in processes of its own, and of the machine, read from /proc."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat counted from the one after the command: the parent, and clock ticks of a process
# and of those of its children that have ended.
_PARENT, _FIRST_TIME, _LAST_TIME = 1, 11, 14
# Fields of the first line of /proc/stat: waiting for a disk is idle time as well.
_IDLE, _WAITING = 4, 5


def tree_cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and its children so far, those that have ended among them.

    Raises:
        FileNotFoundError: there is no such process.
    """
    own = _ticks(_stat(Path(f"/proc/{pid}/stat")))
    return (own + sum(_ticks(stat) for stat in _children(pid))) / _TICKS_PER_SECOND


def idle_seconds() -> float:
    """Seconds in which cores of this machine had nothing to do so far, all cores together."""
    with Path("/proc/stat").open(encoding="utf-8") as file:
        fields = file.readline().split()
    return (int(fields[_IDLE]) + int(fields[_WAITING])) / _TICKS_PER_SECOND


def _children(pid: int) -> Iterator[list[str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            # One may end while it is read; then it counts with its parent.
            with suppress(FileNotFoundError, ProcessLookupError):
                stat = _stat(entry / "stat")
                if int(stat[_PARENT]) == pid:
                    yield stat


def _stat(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8", errors="replace")
    return text[text.rindex(")") + 1 :].split()


def _ticks(stat: list[str]) -> int:
    return sum(map(int, stat[_FIRST_TIME : _LAST_TIME + 1]))
