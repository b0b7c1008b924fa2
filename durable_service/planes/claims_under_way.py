"""Claims that are being answered: a repeat takes over from the call before it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")

ClaimName = tuple[str, str]
"""The holder and its claim id."""


class ClaimUnderWay:
    """One call that claims.

    Attributes:
        superseded: a repeat of it has come, so nobody listens to this one any more.
    """

    def __init__(self) -> None:
        self.superseded = False
        self._wake: Callable[[], None] = lambda: None

    def on_superseded(self, wake: Callable[[], None]) -> None:
        """Calls back when there is no more sense in waiting for a task."""
        self._wake = wake

    def give_way(self) -> None:
        """A newer call asks the same."""
        self.superseded = True
        self._wake()


class _Turns:
    def __init__(self) -> None:
        self.one_at_a_time = asyncio.Lock()
        self.calls: list[ClaimUnderWay] = []


class ClaimsUnderWay:
    """Lets one call at a time answer a claim: two could give one claim two tasks.

    The newest is the one that is listened to. It begins once those before it have ended, and so knows what
    they were granted.
    """

    def __init__(self) -> None:
        self._turns: dict[ClaimName, _Turns] = {}

    @asynccontextmanager
    async def entered(self, name: ClaimName) -> AsyncIterator[ClaimUnderWay]:
        """Holds the turn of a claim for as long as the block lasts."""
        turns = self._turns.setdefault(name, _Turns())
        for before in turns.calls:
            before.give_way()
        mine = ClaimUnderWay()
        turns.calls.append(mine)
        try:
            async with turns.one_at_a_time:
                yield mine
        finally:
            turns.calls.remove(mine)
            if not turns.calls:
                del self._turns[name]


async def finished(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of the work, which is brought to its end also when its caller has gone away meanwhile."""
    working = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait((working,))
        if not working.cancelled():
            # Looked at; whoever it was for has gone.
            working.exception()
        raise
