"""What a run of a back end costs its owner. Configuration cannot say otherwise."""

from pathlib import PurePath
from typing import Literal

import httpx

from relay_service.client.backends.addresses import is_this_machine
from relay_service.client.backends.base import LOCAL_IDS

Cost = Literal["free", "metered", "subscription"]

_SUBSCRIPTION_PROGRAMS = {"claude": "claude-cli", "codex": "codex-cli"}


def cost_of_http(backend_id: str, base_url: str) -> Cost:
    """Return `free` only for a server on this machine that is not declared to be a provider's.

    Whoever runs a server elsewhere may send a bill for it.
    """
    local = backend_id in LOCAL_IDS | {"openai-http"} and is_this_machine(httpx.URL(base_url).host)
    return "free" if local else "metered"


def subscription_of(program: str) -> str | None:
    """Return the id of the subscription that a program is known to spend, or None."""
    return _SUBSCRIPTION_PROGRAMS.get(PurePath(program).name)
