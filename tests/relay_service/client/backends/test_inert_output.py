"""What a model says is carried as it was said: nothing expands, runs, resolves or reads it."""

import asyncio
import json
import sys

import pytest

from relay_service.client.backends.command import CommandBackend
from relay_service.client.backends.completion import read_document
from relay_service.client.outcomes import OkOutcome, RunMetadata, dump_outcome, parse_outcome
from tests.relay_service.client.backends.jobs import generate

TEMPTING = (
    "$HOME ${PATH} %PATH% ~ ~root",
    "$(id) `id` ; rm -rf / && echo done",
    "{0} {name} %s %(name)s {{ 7 * 7 }} ${{ 7 * 7 }} #{7 * 7}",
    "../../etc/passwd file:///etc/passwd http://169.254.169.254/latest/meta-data/",
    '{"tool": "shell", "arguments": {"command": "id"}}',
    "<script>alert(1)</script> &lt; <!-- --> ]]>",
    "\\n \\u0041 \\x41 &#65; %41",
    "\x1b]8;;http://example.org\x07link\x1b]8;;\x07 \r \x08 \x00",
    "  blanks around  ",
)


@pytest.mark.parametrize("text", TEMPTING)
async def test_of_a_command(text: str) -> None:
    program = f"import sys; sys.stdout.buffer.write({text.encode()!r})"
    backend = CommandBackend(
        service="local",
        argv=(sys.executable, "-c", program),
        model="small",
        backend_id="llamacpp",
        environment={"PATH": "/usr/bin:/bin", "HOME": "/home/ann"},
    )
    assert (await backend.run(generate("Hello?"), asyncio.Event())).text == text


@pytest.mark.parametrize("text", TEMPTING)
def test_of_an_endpoint(text: str) -> None:
    body = json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}).encode()
    assert read_document(body, 1_000).text == text


@pytest.mark.parametrize("text", TEMPTING)
def test_on_the_way_to_the_site(text: str) -> None:
    outcome = OkOutcome(text)
    ran = RunMetadata("small", "process", 1, stop="unknown", stop_reported=False)
    opened, _ = parse_outcome(dump_outcome(outcome, ran))
    assert opened == outcome
