"""What a run of a back end costs its owner. Configuration cannot say otherwise."""

import shutil
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Literal

import httpx

from relay_service.client.backends.addresses import is_this_machine
from relay_service.client.backends.base import LOCAL_IDS

Cost = Literal["free", "metered", "subscription"]

_SUBSCRIPTION_PROGRAMS = {
    "claude": "claude-cli",
    "claude-code": "claude-cli",
    "codex": "codex-cli",
}


def cost_of_http(backend_id: str, base_url: str) -> Cost:
    """Return `free` only for a server on this machine that is not declared to be a provider's.

    Whoever runs a server elsewhere may send a bill for it.
    """
    local = backend_id in LOCAL_IDS | {"openai-http"} and is_this_machine(httpx.URL(base_url).host)
    return "free" if local else "metered"


def subscription_of(argv: Sequence[str]) -> str | None:
    """Return the id of the subscription that a command is known to spend, or None.

    Every word counts, since the program may be started by another one (`env`, `npx`, a shell), and so does
    the file behind a link. A word that only looks like one makes the service its owner's alone, which errs on
    the safe side.
    """
    words = [word for argument in argv for word in argument.split()]
    for word in (*words, _file_behind(argv[0])):
        name = PurePath(word).name.partition("@")[0]
        if name in _SUBSCRIPTION_PROGRAMS:
            return _SUBSCRIPTION_PROGRAMS[name]
    return None


def _file_behind(program: str) -> str:
    found = shutil.which(program)
    return program if found is None else str(Path(found).resolve())
