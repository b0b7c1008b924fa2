"""Keeps server and load apart: the server on one core, the load on another, where there are two."""

import os
import resource
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

# Taken once, before anything here narrows it.
_CORES: Sequence[int] = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ()
# More than any run needs; an unlimited hard limit is not accepted as a soft one everywhere.
_MOST_OPEN_FILES = 1_048_576


def pinned(command: Sequence[str]) -> list[str]:
    """The command, bound to the server's core; unchanged where there is only one core, or no taskset."""
    taskset = shutil.which("taskset")
    if taskset is None or len(_CORES) < 2:
        return list(command)
    return [taskset, "-c", str(_CORES[0]), *command]


@contextmanager
def load_on_own_core() -> Iterator[bool]:
    """Binds the calling process to the load's core meanwhile; yields whether it could.

    Servers started inside must be placed by `pinned`: they would inherit the load's core otherwise.
    """
    if len(_CORES) < 2:
        yield False
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {_CORES[1]})
    try:
        yield True
    finally:
        os.sched_setaffinity(0, before)


def raise_open_file_limit() -> int:
    """Lifts the limit of open files as far as it goes, for this process and those it starts; returns it."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = min(hard, _MOST_OPEN_FILES) if hard != resource.RLIM_INFINITY else _MOST_OPEN_FILES
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit
