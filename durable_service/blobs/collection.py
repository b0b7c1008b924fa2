"""The removal of bytes that nothing refers to."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import islice
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
    keys = [key async for key in blobs.keys_before(put_before_ms)]
    remaining = iter(keys)
    while batch := list(islice(remaining, _AT_ONCE)):
        in_use = await referenced(batch)
        kept += len(in_use)
        for key in batch:
            if key not in in_use:
                removed += await blobs.delete_if_before(key, put_before_ms)
    return Collected(removed, kept)
