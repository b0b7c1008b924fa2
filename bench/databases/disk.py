"""How long this machine's disk takes to make a small write safe."""

import asyncio
import os
from tempfile import TemporaryFile
from time import perf_counter

from bench.quantiles import median

_WRITES = 100
_BLOCK = bytes(8192)


async def sync_ms() -> float:
    """Milliseconds that a write of 8 KiB takes until it is on the disk; the median of many."""
    return await asyncio.to_thread(_sync_ms)


def _sync_ms() -> float:
    # Where the stores of the bench have their files too.
    with TemporaryFile(prefix="bench-disk-") as file:
        return median(_one(file.fileno()) for _ in range(_WRITES))


def _one(descriptor: int) -> float:
    started = perf_counter()
    os.pwrite(descriptor, _BLOCK, 0)
    os.fdatasync(descriptor)
    return (perf_counter() - started) * 1000
