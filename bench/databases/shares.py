"""Who takes how much of the machine's cores while something is measured."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from time import process_time

from bench.process_stats import cpu_seconds
from bench.process_trees import idle_seconds, tree_cpu_seconds
from bench.variant import VariantFailedError

_CORES = os.cpu_count() or 1
# A process that runs on one core at a time is at its end from here on; what is missing is the scheduler's.
_FULL = 0.85
# The share of all cores that is idle when there is no room any more.
_NO_ROOM = 0.1
# From this share of all cores on, programs that are none of the bench may be why.
_DISTURBED = 0.15


class Limit(StrEnum):
    """What stands in the way of more operations a second."""

    SERVICE = "service"
    DATABASE = "database"
    LOAD = "load"
    CORES = "all cores"
    WAITING = "waiting"
    OTHERS = "others"


@dataclass(frozen=True, slots=True)
class Shares:
    """CPU seconds, each with the wall time in which they were taken.

    Attributes:
        services: of each process of the service.
        load: of the process that drives the load.
        idle: of all cores.
    """

    services: Sequence[float]
    database: float
    load: float
    idle: float
    elapsed: float

    @classmethod
    def total(cls, parts: "Iterable[Shares]") -> "Shares":
        """All of them together; there is at least one."""
        all_parts = list(parts)
        return cls(
            [sum(each) for each in zip(*(part.services for part in all_parts), strict=True)],
            sum(part.database for part in all_parts),
            sum(part.load for part in all_parts),
            sum(part.idle for part in all_parts),
            sum(part.elapsed for part in all_parts),
        )

    def cores(self, seconds: float) -> float:
        """CPU seconds as so many cores."""
        return seconds / self.elapsed if self.elapsed > 0 else 0.0

    def limit(self, *, database_on_one_core: bool) -> Limit:
        """What is at its end.

        `WAITING` says that nothing is: each waits for the others, or for the disk. `OTHERS` says that other
        programs had too much of the machine for a word on it.
        """
        at_work = {Limit.SERVICE: max(self.services, default=0.0), Limit.LOAD: self.load}
        if database_on_one_core:
            at_work[Limit.DATABASE] = self.database
        busiest = max(at_work, key=lambda one: at_work[one])
        if self.cores(at_work[busiest]) >= _FULL:
            return busiest
        if self.cores(self.idle) > _NO_ROOM * _CORES:
            return Limit.WAITING
        return Limit.OTHERS if self._others() > _DISTURBED * _CORES else Limit.CORES

    def _others(self) -> float:
        ours = sum(self.services) + self.database + self.load
        return _CORES - self.cores(ours + self.idle)


class SharesMeter:
    """Counts from now on.

    Args:
        services: process ids of the service.
        database: process id of the database server; None where there is none.

    Raises:
        VariantFailedError: here and at the end: one of the processes has ended.
    """

    def __init__(self, services: Sequence[int], database: int | None) -> None:
        self._pids = services
        self._database = database
        self._services_before, self._database_before = self._read()
        # Last: reading the others is not part of the load.
        self._idle_before, self._load_before = idle_seconds(), process_time()

    def taken(self, elapsed: float) -> Shares:
        """What was taken since, in so many seconds of work."""
        load, idle = process_time() - self._load_before, idle_seconds() - self._idle_before
        services, database = self._read()
        return Shares(
            [now - before for now, before in zip(services, self._services_before, strict=True)],
            database - self._database_before,
            load,
            idle,
            elapsed,
        )

    def _read(self) -> tuple[list[float], float]:
        try:
            services = [cpu_seconds(pid) for pid in self._pids]
            return services, 0.0 if self._database is None else tree_cpu_seconds(self._database)
        except (FileNotFoundError, ProcessLookupError) as error:
            raise VariantFailedError("one of its processes has ended") from error
