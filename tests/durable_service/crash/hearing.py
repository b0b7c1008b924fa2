"""How a service hears of what others on its database do: as built, or in the one way that a test looks at."""

import asyncio
from collections.abc import Mapping
from typing import Any

from durable_service.store.change_feed import ChangeFeed
from durable_service.sweeper import Sweeper


def hear_of_others(options: Mapping[str, Any]) -> None:
    """What is wanted of the one service in this process.

    Args:
        options: `look_seconds` is how long its feed waits for a message at most; `deaf` drops every message;
            `sweeps`, when false, leaves to others what is over.
    """
    if "look_seconds" in options:
        defaults: Any = ChangeFeed.__init__.__kwdefaults__
        defaults["look_seconds"] = options["look_seconds"]
    if options.get("deaf"):
        _replace(ChangeFeed, "wake", lambda _: None)
    if not options.get("sweeps", True):
        _replace(Sweeper, "run", _nothing)


async def _nothing(_: object) -> None:
    await asyncio.Event().wait()


def _replace(owner: type, name: str, by: object) -> None:
    setattr(owner, name, by)
