"""The demo as a stranger runs it: real processes, without a language model."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.processes import RunningProcess, running
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, str(ROOT / "examples" / "python" / "demo")]
DEMO_SECONDS = 150.0
# Columns of a terminal; nothing may be wider when it is not one.
WIDTH = 80


def environment(folder: Path) -> dict[str, str]:
    """All processes of the demo, and what their daemons start, carry this folder in their environment."""
    return {"BACKEND": "command", "TMPDIR": str(folder), "COLUMNS": "80", "PYTHONPATH": ""}


def marked_processes(folder: Path) -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            marked = str(folder).encode() in (entry / "environ").read_bytes()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        # A process that has ended and waits to be reaped has no command line.
        if marked and command:
            yield int(entry.name), command


async def expect_nothing_left(folder: Path) -> None:
    await eventually(
        lambda: not list(marked_processes(folder)),
        describe=lambda: f"the end of {list(marked_processes(folder))}",
    )
    assert os.listdir(folder) == []  # noqa: PTH208 - in a test, blocking is no harm


def text_of(process: RunningProcess) -> str:
    return "\n".join(line.rstrip() for line in process.stdout)


async def test_the_demo_shows_everything_and_leaves_nothing(tmp_path: Path) -> None:
    async with running(DEMO, env=environment(tmp_path), cwd=ROOT) as process:
        status = await process.wait(DEMO_SECONDS)
        text = text_of(process)
        assert status == 0, process.describe()
        # Steps, in order.
        headings = re.findall(r"^(\d)  (.+?) ─", text, re.MULTILINE)
        assert headings == [
            ("1", "A relay, an operator's decisions, two devices"),
            ("2", "Two prompts: sealed, routed, answered"),
            ("3", "What the relay could see of one job"),
            ("4", "A running job is cancelled"),
            ("5", "A device dies in the middle of a job"),
            ("6", "A durable task outlives its worker"),
            ("7", "A durable task asks through the relay"),
        ]
        beats = r"enqueued \d+ → claimed \d+ → sealed \d+ → running \d+ → answered \d+"
        assert len(re.findall(beats, text)) == 2
        assert "You wrote 10 words, beginning: “What is a lighthouse for?" in text
        assert re.search(r"traffic with the site *│ +[\d,]+ │ found +│ 0 found", text)
        assert re.search(
            r"From cancel\(\) to the end of the work: about \d+ ms; there and back: \d+ ms", text
        )
        codes = re.findall(r"^  alice-(?:desktop|laptop) +(\w{4}-\w{4})  BYOLLM-", text, re.MULTILINE)
        assert len(codes) == 2
        assert all(
            f"$ relay-service approve {code} --owner alice --relay 127.0.0.1:" in text for code in codes
        )
        killed = r"^ +0 ms +SIGKILL for the daemon of alice-(desktop|laptop)-\w{4}$"
        assert re.search(killed, text, re.MULTILINE)
        assert "its lease of 6 s has run out: the job is back in the queue" in text
        expect_durable_scene(text)
        expect_asking_scene(text)
        assert "It all worked" in text
        assert process.stderr == []
        assert max(len(line) for line in process.stdout) <= WIDTH
        assert "\x1b" not in text
    await expect_nothing_left(tmp_path)


def expect_durable_scene(text: str) -> None:
    scene = text[text.index("6  A durable task") : text.index("7  A durable task")]
    assert "it has: SIGKILL." in " ".join(scene.split())
    assert re.search("^  conditions +lease-expired recovery-required$", scene, re.MULTILINE)
    assert "recovery-only, for the outcome of book-room" in scene
    assert "line 1 of the outside's book: book-room is confirmed" in scene
    approval = re.search(r"^  approval +(\S{22})$", scene, re.MULTILINE)
    assert approval is not None
    assert f"$ durable-service approvals approve {approval[1][:8]} --yes" in scene
    journal = re.findall(r"^ +[\d,]+ ms  (\S+)", scene, re.MULTILINE)
    # Each effect was begun once and confirmed once; the worker that died had one lease, and its heir three.
    assert journal.count("action.executing") == journal.count("action.confirmed") == 2
    assert (journal.count("lease.granted"), journal.count("lease.expired")) == (4, 1)
    assert journal.count("budget.reserved") == journal.count("approval.decided") == 1
    assert (journal[0], journal[-1]) == ("task.created", "task.state")
    assert "the handler ran 3 times. The room was booked once" in " ".join(scene.split())


def expect_asking_scene(text: str) -> None:
    scene = text[text.index("7  A durable task") :]
    flowing = " ".join(scene.split())
    assert "SIGKILL for worker-3." in flowing
    assert re.search(
        "^  the job +durable-[0-9a-f]{12}…, after the action's idempotency key$", scene, re.MULTILINE
    )
    assert "relay-result: verified, kept beside the task, confirmed" in flowing
    assert "“user: Write a few lines about a bridge that lasts.”" in flowing
    assert re.search(
        r"completed: the log of alice-\S+ has the prompt once, and the task has one answer", flowing
    )


async def test_a_process_that_dies_is_named_with_its_last_words(tmp_path: Path) -> None:
    async with running(DEMO, env=environment(tmp_path), cwd=ROOT) as process:
        await process.wait_line("^2  Two prompts", 60)
        relay = [pid for pid, command in marked_processes(tmp_path) if " serve " in command]
        assert len(relay) == 1
        os.kill(relay[0], signal.SIGKILL)
        assert await process.wait(60) == 1
        text = text_of(process)
        assert "last lines of relay" in text
        assert '"event":"relay is serving"' in text
        assert "The demo failed" in text
        assert "The relay was ended by SIGKILL" in text
        assert "Traceback" not in "\n".join(process.lines)
    await expect_nothing_left(tmp_path)


async def test_ctrl_c_ends_everything(tmp_path: Path) -> None:
    async with running(DEMO, env=environment(tmp_path), cwd=ROOT) as process:
        await process.wait_line("^2  Two prompts", 60)
        os.kill(process.pid, signal.SIGINT)
        assert await process.wait(60) == 130
        assert "Interrupted. Everything that the demo started has been ended." in text_of(process)
        assert "Traceback" not in "\n".join(process.lines)
    await expect_nothing_left(tmp_path)
