"""Bytes in the memory of one process: for tests and for trying things out."""

from collections.abc import AsyncIterator, Callable

from durable_service.blobs.base import checked_data, checked_key, collision
from durable_service.core.limits import BLOB_BYTES


class MemoryBlobStore:
    """A store that is not durable, and says so."""

    def __init__(self, wall: Callable[[], int], limit_bytes: int = BLOB_BYTES) -> None:
        """Make an empty store.

        Args:
            wall: epoch milliseconds.
        """
        self._wall = wall
        self._limit_bytes = limit_bytes
        self._blobs: dict[str, tuple[bytes, int]] = {}

    @property
    def durable(self) -> bool:
        return False

    async def put(self, key: str, data: bytes) -> None:
        kept = bytes(checked_data(data, self._limit_bytes))
        present = self._blobs.get(checked_key(key))
        if present is not None and present[0] != kept:
            raise collision()
        self._blobs[key] = (kept, self._wall())

    async def get(self, key: str) -> bytes | None:
        present = self._blobs.get(checked_key(key))
        return None if present is None else present[0]

    async def delete(self, key: str) -> None:
        self._blobs.pop(checked_key(key), None)

    async def keys_before(self, put_before_ms: int) -> AsyncIterator[str]:
        for key in [key for key, (_, at_ms) in self._blobs.items() if at_ms < put_before_ms]:
            yield key

    async def delete_if_before(self, key: str, put_before_ms: int) -> bool:
        present = self._blobs.get(checked_key(key))
        if present is None or present[1] >= put_before_ms:
            return False
        del self._blobs[key]
        return True

    async def close(self) -> None:
        """Nothing is held open."""
