"""Whether a store takes writes, of those that answer questions when they take none."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class ChecksWrites(Protocol):
    """A store whose disk may be full, or whose file may be read-only, while everything can still be read."""

    async def check_writes(self) -> None:
        """Writes a little when the last write has failed, to learn whether the next one would; else nothing.

        Raises:
            StoreUnavailable: it takes none.
        """
