"""Keeps server and load apart: the server on one core, the load on another, where there are two."""

import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

# Taken once, before anything here narrows it.
_CORES: Sequence[int] = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ()
# More than any run needs; an unlimited hard limit is not accepted as a soft one everywhere.
_MOST_OPEN_FILES = 1_048_576


@contextmanager
def on_server_core() -> Iterator[None]:
    """Lets processes started inside inherit the server's core; does nothing where there is only one."""
    with _on_core(0):
        yield


@contextmanager
def on_load_core() -> Iterator[bool]:
    """Binds the calling thread, and threads it starts, to the load's core meanwhile; yields whether it could.

    A server started inside must be started on `on_server_core`: it would inherit the load's core otherwise.
    """
    with _on_core(1):
        yield len(_CORES) > 1


@contextmanager
def on_all_cores() -> Iterator[None]:
    """Lets processes started inside run wherever they find room, the load's core included."""
    with _on_cores(set(_CORES)):
        yield


def raise_open_file_limit() -> int:
    """Lifts the limit of open files as far as it goes, for this process and those it starts; returns it."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = min(hard, _MOST_OPEN_FILES) if hard != resource.RLIM_INFINITY else _MOST_OPEN_FILES
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit


@contextmanager
def _on_core(position: int) -> Iterator[None]:
    with _on_cores({_CORES[position]} if len(_CORES) > 1 else set()):
        yield


@contextmanager
def _on_cores(cores: set[int]) -> Iterator[None]:
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
