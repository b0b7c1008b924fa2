"""The removal of bytes that nothing refers to."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from durable_service.blobs.base import BlobStore

Referenced = Callable[[Sequence[str]], Awaitable[frozenset[str]]]
_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection found among the bytes that are old enough."""

    removed: int
    referenced: int


async def collect_orphans(blobs: BlobStore, referenced: Referenced, put_before_ms: int) -> Collected:
    """Removes bytes without a reference that were put before an instant.

    A reference is written after its bytes, so the instant must lie further back than the longest upload.

    Args:
        referenced: which of these keys a task refers to; `TaskStore.referenced`.
    """
    removed = kept = 0
    async for batch in _batches(blobs.keys_before(put_before_ms)):
        in_use = await referenced(batch)
        kept += len(in_use)
        for key in batch:
            if key not in in_use:
                removed += await blobs.delete_if_before(key, put_before_ms)
    return Collected(removed, kept)


async def _batches(keys: AsyncIterator[str]) -> AsyncIterator[Sequence[str]]:
    """Some keys at a time: there may be more of them than one wants to hold."""
    batch: list[str] = []
    async for key in keys:
        batch.append(key)
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
