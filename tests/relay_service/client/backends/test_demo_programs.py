import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from relay_service.client.backends.base import RunCanceled
from relay_service.client.backends.command import CommandBackend
from tests.relay_service.client.backends.jobs import generate

DEMO = Path(__file__).parents[4] / "examples/python/demo"
PROMPT = "What is a relay, and why would I want one on my own machine?"
ANSWER = (
    "You wrote 14 words, beginning: “What is a relay, and why would I want one on my …” "
    "It took its time over every one of them and wrote this answer one word after another."
)


def echo_model(*options: str) -> CommandBackend:
    return CommandBackend(
        service="echo",
        argv=[sys.executable, str(DEMO / "echo_model.py"), *options],
        model="echo",
        backend_id="llamacpp",
        environment={"PATH": "/usr/bin:/bin"},
        terminate_seconds=0.05,
    )


@pytest.mark.parametrize("seconds", ["0", "0.05"])
async def test_the_echo_model_answers_alike_at_any_speed(seconds: str) -> None:
    result = await echo_model("--seconds", seconds).run(generate(PROMPT), asyncio.Event())
    assert result.text == ANSWER


async def test_the_echo_model_counts_one_word() -> None:
    result = await echo_model().run(generate("Hello?"), asyncio.Event())
    assert result.text.startswith("You wrote 1 word, beginning: “Hello?” It")


async def test_the_echo_model_writes_word_by_word_and_ends_on_cancel() -> None:
    cancelled = asyncio.Event()
    backend = echo_model("--seconds", "1000", "--ignore-terminate")
    run = asyncio.create_task(backend.run(generate(PROMPT), cancelled))
    cancelled.set()
    with pytest.raises(RunCanceled):
        await run


def test_the_echo_model_ends_quietly_when_its_reader_is_gone() -> None:
    child = subprocess.Popen(
        [sys.executable, str(DEMO / "echo_model.py"), "--seconds", "0.05"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    child.stdin.write(PROMPT.encode())
    child.stdin.close()

    assert child.wait(timeout=30) == 1
    assert child.stderr.read() == b""
    child.stderr.close()


def test_the_model_server_says_what_is_missing() -> None:
    # Without site packages nothing is installed.
    argv = [sys.executable, "-I", "-S", str(DEMO / "model_server.py")]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 3
    assert ended.stdout == ""
    assert ended.stderr == "no model: xllamacpp (the engine) is not installed: pip install xllamacpp\n"
