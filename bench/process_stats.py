"""CPU time and memory of other processes, read from /proc."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from bench.variant import VariantFailedError

Number = TypeVar("Number", int, float)

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat counted from the one after the command: user and system time in clock ticks.
_USER_TIME, _SYSTEM_TIME = 11, 12


def parse_cpu_ticks(stat: str) -> int:
    """User and system time of a /proc/PID/stat line, in clock ticks.

    The command stands in parentheses and may itself hold spaces and parentheses, so fields are counted from
    the last closing one.
    """
    fields = stat[stat.rindex(")") + 1 :].split()
    return int(fields[_USER_TIME]) + int(fields[_SYSTEM_TIME])


def parse_rss_kib(status: str) -> int:
    """Resident memory of a /proc/PID/status text, in KiB; 0 for a process that has none left."""
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def cpu_seconds(pid: int) -> float:
    """CPU time all threads of a process have taken so far, in seconds.

    Raises:
        FileNotFoundError: there is no such process.
    """
    return parse_cpu_ticks(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")) / _TICKS_PER_SECOND


def main_thread_seconds(pid: int) -> float:
    """CPU time that the main thread of a process has taken so far, in seconds to the microsecond.

    Raises:
        FileNotFoundError: there is no such process.
    """
    on_cpu_ns, *_rest = Path(f"/proc/{pid}/schedstat").read_text(encoding="utf-8").split()
    return int(on_cpu_ns) / 1_000_000_000


def rss_kib(pid: int) -> int:
    """Resident memory of a process in KiB.

    Raises:
        FileNotFoundError: there is no such process.
    """
    return parse_rss_kib(Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))


@dataclass(slots=True)
class ServerMeter:
    """What a server, of one process or several, takes from now on.

    Raises:
        VariantFailedError: here and in each method: one of the processes has ended.
    """

    pids: Sequence[int]
    _cpu_at_start: float = field(init=False)

    def __post_init__(self) -> None:
        self._cpu_at_start = self._cpu_seconds()

    def cpu_seconds(self) -> float:
        """CPU seconds taken since this meter was made."""
        return self._cpu_seconds() - self._cpu_at_start

    def rss_kib(self) -> int:
        """Resident memory at this moment, in KiB."""
        return sum(self._read(rss_kib))

    def _cpu_seconds(self) -> float:
        return sum(self._read(cpu_seconds))

    def _read(self, reader: Callable[[int], Number]) -> list[Number]:
        try:
            return [reader(pid) for pid in self.pids]
        except (FileNotFoundError, ProcessLookupError) as error:
            raise VariantFailedError("its server process has ended") from error
