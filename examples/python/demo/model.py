"""What the devices of the demo answer with: a language model on this machine, or a command."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from examples.python.demo.children import Children

FOLDER = Path(__file__).resolve().parent
MODEL_SECONDS = 90.0
MOST_THREADS = 4
# Long enough to be cancelled or cut off in the middle.
QUICK_TOKENS = 48
LONG_TOKENS = 160
QUICK_SECONDS = 0.8
LONG_SECONDS = 5.0


@dataclass(frozen=True)
class Model:
    """Something that answers prompts.

    Attributes:
        title: What it is, for people.
        configuration: The part of a daemon's configuration that is about it.
        why_not: Why it is not the language model that was asked for.
    """

    title: str
    configuration: str
    why_not: str = ""


async def start_model(children: Children) -> Model:
    """Return what the environment asks for, started; a command when the language model cannot be had."""
    if os.environ.get("BACKEND", "model") != "model":
        return command_model()
    # Threads of the engine wait for each other at every step: one core is left to everybody else.
    threads = max(1, min(MOST_THREADS, (os.cpu_count() or 2) - 1))
    command = [
        sys.executable,
        str(FOLDER / "model_server.py"),
        "--exit-with-parent",
        "--threads",
        str(threads),
    ]
    child = await children.start("model server", command)
    # It may end: then the command takes its place.
    child.expendable = True
    line = await children.while_alive(child.find_line(r'^\{"port".*\}$'), MODEL_SECONDS, "the model to load")
    if line is None:
        reason = next((line for line in reversed(child.lines) if line.startswith("no model: ")), "")
        return command_model(reason.removeprefix("no model: ") or f"it {child.ending}")
    child.expendable = False
    return _language_model(json.loads(line[0]))


def command_model(why_not: str = "") -> Model:
    """Return the command that stands in for a language model."""
    echo = [sys.executable, str(FOLDER / "echo_model.py"), "--seconds"]
    services = [
        _service(
            "echo",
            "llm.generate",
            "echo",
            f'backend = "command"\nargv = {_toml([*echo, f"{QUICK_SECONDS}"])}',
        ),
        _service(
            "slow-echo",
            "llm.chat",
            "echo",
            f'backend = "command"\nargv = {_toml([*echo, f"{LONG_SECONDS}"])}',
        ),
    ]
    return Model("a command that quotes the prompt (echo_model.py)", "\n".join(services), why_not)


def _language_model(announced: dict[str, str]) -> Model:
    name, base_url = announced["model"], announced["base_url"]
    reach = f'backend = "llamacpp"\nbase_url = {_toml(base_url)}\nmax_tokens = '
    services = [
        _service("smollm", "llm.generate", name, f"{reach}{QUICK_TOKENS}"),
        _service("smollm-long", "llm.chat", name, f"{reach}{LONG_TOKENS}"),
    ]
    return Model(f"{name}, a language model on this machine", "\n".join(services))


def _service(service: str, kind: str, model: str, rest: str) -> str:
    lines = [
        "[[services]]",
        f"service = {_toml(service)}",
        f"kind = {_toml(kind)}",
        f"model = {_toml(model)}",
        rest,
    ]
    return "\n".join(lines) + "\n"


def _toml(value: str | list[str]) -> str:
    """A basic string or an array of them is spelled as in JSON."""
    return json.dumps(value)
