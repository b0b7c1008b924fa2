"""What is done about other processes that write to the same tasks."""

import asyncio
import random
from typing import Final, TypeVar

Item = TypeVar("Item")

# Tries of one update; between them at most this much in all is waited, about five seconds.
TRIES: Final = 24
_FIRST_WAIT_SECONDS: Final = 0.004
_LONGEST_WAIT_SECONDS: Final = 0.4
# After a conflict the processes are taken to want the same tasks for so long.
_CONTENDED_SECONDS: Final = 1.0


class Contention:
    """Whether other processes are after the same tasks, and how to stay out of their way."""

    def __init__(self) -> None:
        self._until = 0.0

    @property
    def present(self) -> bool:
        return asyncio.get_running_loop().time() < self._until

    async def wait(self, tries: int) -> None:
        """After a write that came too late: a random time, longer with each try."""
        self._until = asyncio.get_running_loop().time() + _CONTENDED_SECONDS
        longest = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2**tries)
        await asyncio.sleep(random.uniform(0, longest))  # noqa: S311 - no secret

    def widened(self, limit: int) -> int:
        """How many to look at in order to choose `limit`."""
        return 4 * limit if self.present else limit

    def chosen(self, found: list[Item], limit: int) -> list[Item]:
        """The first ones; while others want them as well, any of the first."""
        if self.present:
            random.shuffle(found)
        return found[:limit]
