"""Step 7: a durable task asks a device through the relay, and its worker is killed while it waits."""

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any

from examples.python.demo.children import Child
from examples.python.demo.durable_party import LEASE_SECONDS, Party
from examples.python.demo.failures import DemoFailure
from examples.python.demo.scenery import SITE_ID, prompt_log
from examples.python.demo.screen import quoted
from examples.python.demo.stage import Stage

PROMPT = "Write a few lines about a bridge that lasts."
CREATE = ("tasks", "create", "ask", "--driver", "ask@1", "--input", json.dumps(PROMPT))
ID_CHARACTERS = 20


async def play(stage: Stage, party: Party) -> None:
    stage.screen.heading(7, "A durable task asks through the relay")
    runner_id = await _killed_while_it_waits(stage, party)
    heir = await _looked_up(stage, party, runner_id)
    await _told(stage, party, heir)


async def _killed_while_it_waits(stage: Stage, party: Party) -> str:
    stage.screen.say(
        "The two services meet in a worker: to the relay it is the site, and its question to Alice's devices "
        "is an action of a task. That the prompt leaves is written down before it does."
    )
    stage.screen.command(shlex.join(("durable-service", *CREATE)))
    await party.command("alice", *CREATE)
    worker = await party.start_worker("worker-3", *await _site(stage), script="asking_worker.py")
    await _line(stage, worker, "^runs, fence", "worker-3 to take the task")
    (entry,) = await stage.wait(_prompts(stage), "a device to begin")
    runner_id = str(entry["runner_id"])
    worker.kill()
    await worker.end()
    stage.screen.quote(f"[site]{quoted(PROMPT)}[/]")
    stage.screen.say(
        f"[device]worker-3[/] has sealed it to [device]{runner_id}[/], which works on it. Nobody waits for "
        "the answer any more: [bad]SIGKILL[/] for worker-3."
    )
    return runner_id


async def _looked_up(stage: Stage, party: Party, runner_id: str) -> Child:
    await stage.wait(_free(party), f"the end of its lease of {LEASE_SECONDS} s")
    heir = await party.start_worker("worker-4", "--settle", *await _site(stage), script="asking_worker.py")
    pattern = "^looked up: ask confirmed by ([a-z-]+):(.+)$"
    found = await _line(stage, heir, pattern, "worker-4 to find the answer at the relay")
    waited = any(line.startswith("looked up: ask unknown by relay-job-unfinished") for line in heir.lines)
    stage.screen.say("[device]worker-4[/] does not ask again. It looks up the job of that action:")
    unfinished = ("at first", f"the relay knows it, and {runner_id} is not done: nothing is settled")
    stage.screen.facts(
        (
            ("the job", f"{found[2][:ID_CHARACTERS]}…, after the action's idempotency key"),
            *([unfinished] if waited else []),
            ("then", f"[good]{found[1]}[/]: verified, kept beside the task, confirmed"),
        )
    )
    return heir


async def _told(stage: Stage, party: Party, heir: Child) -> None:
    answered = await _line(stage, heir, "^answered (.+)$", "the handler to go on with the answer")
    await stage.wait(party.command("alice", "tasks", "wait", "ask"), "the task to complete")
    task = await party.asked("alice", "tasks", "get", "ask")
    prompts, kept = await _prompts(stage), [each for each in task["artifacts"] if "answer-" in each["id"]]
    if task["state"] != "completed" or len(prompts) != 1 or len(kept) != 1:
        raise DemoFailure(
            f"The task is {task['state']}; the prompt ran {len(prompts)} times; answers kept: {len(kept)}.",
            "Run the demo again.",
        )
    runner_id, text = json.loads(answered[1])
    stage.screen.quote(f"[device]{quoted(text, 240)}[/]")
    stage.screen.say(
        f"[good]{task['state']}[/]: the log of {runner_id} has the prompt once, and the task has one answer "
        f"of {kept[0]['size_bytes']} bytes. Only then was the relay told to forget it."
    )
    stage.results.append("a task asked through the relay: its worker died, and the prompt ran once")


async def _site(stage: Stage) -> list[str]:
    keys = stage.folder / "site-keys.json"
    if not keys.exists():
        stage.parties.site.save(keys)
    return ["--relay", stage.relay_address, "--site", SITE_ID, "--site-keys", str(keys)]


async def _prompts(stage: Stage) -> list[dict[str, Any]]:
    """Return what the devices have logged of the prompt, once there is something."""
    while True:
        found = [
            {**entry, "runner_id": runner_id}
            for runner_id in stage.parties.devices
            for entry in _entries(prompt_log(stage.folder, runner_id))
            if PROMPT in str(entry.get("text"))
        ]
        if found:
            return found
        await asyncio.sleep(0.01)


def _entries(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


async def _free(party: Party) -> None:
    while True:
        task = await party.asked("alice", "tasks", "get", "ask")
        if "recovery-required" in task["conditions"]:
            return
        await asyncio.sleep(0.2)


async def _line(stage: Stage, worker: Child, pattern: str, what: str) -> "re.Match[str]":
    line = await stage.wait(worker.find_line(pattern), what)
    if line is None:
        raise worker.failed(f"The {worker.name} ended before its time.", "Its last lines should say why.")
    return line
