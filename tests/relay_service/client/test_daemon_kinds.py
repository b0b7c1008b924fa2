"""A kind is run when it is both offered and has a handler; each of the two is missed by itself."""

from dataclasses import replace
from typing import Any

import pytest

from relay_service.core.model import Capability
from sealwork.relay.v1 import daemon_plane_pb2
from tests.relay_service.client.real_relay import GENERATE
from tests.relay_service.client.scripted_device import Work, played_relay

CHAT = replace(GENERATE, kind="llm.chat")


@pytest.mark.parametrize(
    ("matrix", "kinds", "kind"),
    [
        # A handler is there and the kind is not offered.
        ((GENERATE,), ("llm.generate", "llm.chat"), "llm.chat"),
        # The kind is offered and nothing can handle it.
        ((GENERATE, CHAT), ("llm.generate",), "llm.chat"),
        # A kind that nobody has heard of, and one that only looks like another.
        ((GENERATE, CHAT), ("llm.generate", "llm.chat"), "shell.run"),
        ((GENERATE, CHAT), ("llm.generate", "llm.chat"), "LLM.chat"),
    ],
)
async def test_another_kind_is_refused(
    matrix: tuple[Capability, ...], kinds: tuple[str, ...], kind: str
) -> None:
    work = Work()
    handlers: dict[str, Any] = dict.fromkeys(kinds, work)
    async with played_relay(work, matrix=matrix, handlers=handlers) as relay:
        await relay.grant("j-1", kind=kind)
        assert (await relay.released()).reason == daemon_plane_pb2.RELEASE_REASON_REFUSED
        assert relay.daemon.active == 0
    assert work.started == []
