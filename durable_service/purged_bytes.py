"""The bytes of tasks that were purged."""

from collections.abc import Iterable

from durable_service.blobs.base import BlobStore
from durable_service.store.base import Purged


async def remove_bytes(blobs: BlobStore, purged: Iterable[Purged]) -> None:
    """Removes what purged tasks referred to.

    It comes after the references: bytes without one are collected later if this does not come to its end.
    """
    for task in purged:
        for blob_key in task.blob_keys:
            await blobs.delete(blob_key)
