"""Step 6: a durable task whose worker is killed between an effect and the word of it."""

import asyncio
import re
import shlex
from typing import Any

from examples.python.demo.children import Child
from examples.python.demo.durable_party import LEASE_SECONDS, Party
from examples.python.demo.failures import DemoFailure
from examples.python.demo.stage import Stage

BUDGET = ("--max-tokens", "100", "--max-attempts", "4")
CREATE = ("tasks", "create", "party", "--driver", "party@1", "--input", '{"room":"lamp"}', *BUDGET)
AS_BOB = "--principal bob --key bob.key"
WORKER = "durable_worker.py"


async def play(stage: Stage) -> Party:
    stage.screen.heading(6, "A durable task outlives its worker")
    party = Party(stage.children, stage.folder)
    await _open(stage, party)
    await _killed_between_effect_and_word(stage, party)
    heir = await _refused_and_settled(stage, party)
    await _approved(stage, party, heir)
    await _told(stage, party)
    # For step 7; nobody is left who works on what it has shown.
    await heir.stop()
    return party


async def _open(stage: Stage, party: Party) -> None:
    screen = stage.screen
    with screen.waiting("starting the durable service"):
        commands = await party.add_principals()
        serving = await party.serve()
    screen.say(
        "Sealwork's other service keeps tasks, in a file. Alice may create them, Bob may approve what they "
        "do, and a worker may do neither:"
    )
    for command in [*commands, serving]:
        screen.command(command)
    screen.say(
        "A task: reserve 40 of its 100 tokens, book a room, and, when Bob has approved it, send invitations:"
    )
    screen.command("export DURABLE_PRINCIPAL=alice DURABLE_KEY=alice.key")
    screen.command(shlex.join(("durable-service", *CREATE)))
    await party.command("alice", *CREATE)


async def _killed_between_effect_and_word(stage: Stage, party: Party) -> None:
    worker = await party.start_worker("worker-1", "--slow", *_outside(party), script=WORKER)
    await _line(stage, worker, "^sent book-room", "worker-1 to book the room")
    worker.kill()
    await worker.end()
    stage.screen.say(
        "[device]worker-1[/] has written down its intent and booked the room. Before it can write down that "
        "it has: [bad]SIGKILL[/]."
    )


async def _refused_and_settled(stage: Stage, party: Party) -> Child:
    shown = await stage.wait(_recovery_required(party), f"the end of its lease of {LEASE_SECONDS} s")
    stage.screen.say("Its lease is over, and nobody knows whether the room is booked:")
    stage.screen.command("durable-service tasks get party")
    conditions = " ".join(shown["conditions"])
    stage.screen.facts((("state", shown["state"]), ("conditions", f"[bad]{conditions}[/]")))
    heir = await party.start_worker("worker-2", "--settle", *_outside(party), script=WORKER)
    refused = await _line(stage, heir, "^refused: (.+), (.+)$", "worker-2 to be refused")
    settled = await _line(stage, heir, "^settled (.+) (.+) by (.+)$", "worker-2 to find evidence")
    stage.screen.say("[device]worker-2[/] is not given the task, and does not book a second room:")
    stage.screen.facts(
        (
            ("its claim", f"[bad]{refused[1]}[/], for the outcome of {refused[2]}"),
            ("it looks up", "the action's idempotency key, where rooms are booked"),
            ("evidence", f"{settled[3]}: {settled[1]} is [good]{settled[2]}[/]"),
        )
    )
    if settled[2] != "confirmed":
        raise DemoFailure("The effect of the dead worker was not found.", "Run the demo again.")
    return heir


async def _approved(stage: Stage, party: Party, heir: Child) -> None:
    await _line(stage, heir, "^runs, fence", "worker-2 to go on")
    approval = await stage.wait(_pending(party), "the task to ask for approval")
    stage.screen.say("It goes on, with the booked room, up to the invitations. Those are Bob's to approve:")
    stage.screen.command(f"durable-service approvals list {AS_BOB}")
    stage.screen.facts(
        (
            ("approval", approval["id"]),
            ("what", f"{approval['action_id']}, bound to {approval['prepared_hash'][:24]}…"),
        )
    )
    short = approval["id"][:8]
    stage.screen.command(f"durable-service approvals approve {short} --yes {AS_BOB}")
    await party.command("bob", "approvals", "approve", short, "--yes")
    await stage.wait(party.command("alice", "tasks", "wait", "party"), "the task to complete")


async def _told(stage: Stage, party: Party) -> None:
    ended = await party.asked("alice", "tasks", "get", "party")
    sent = [line.split()[1] for line in party.outside.read_text(encoding="utf-8").splitlines()]
    journal = await party.journal()
    if ended["state"] != "completed" or sent != ["book-room", "send-invitations"]:
        raise DemoFailure(f"The task is {ended['state']}, and outside happened: {sent}.", "Run it again.")
    stage.screen.command("durable-service events party")
    start = journal[0]["at_ms"]
    stage.screen.moments([(each["at_ms"] - start, _event(each)) for each in journal])
    usage = ended["usage"]
    stage.screen.say(
        f"[good]{ended['state']}[/]: the handler ran {usage['attempts']} times. The room was booked once, "
        f"the invitations were sent once, and {usage['reserved_tokens']} tokens were counted once."
    )
    stage.results.append("a durable task outlived its worker, and did nothing twice")


def _outside(party: Party) -> tuple[str, str]:
    return "--outside", str(party.outside)


def _event(event: dict[str, Any]) -> str:
    return f"{event['type']:<26}{_about(event['type'], event['data'])}"


def _about(event_type: str, data: dict[str, Any]) -> str:
    match event_type:
        case "task.state":
            return f"{data['before']} → {data['state']}"
        case "lease.granted":
            return f"[device]{_worker(data)}[/], fence {data['fence']}"
        case "lease.expired":
            return f"[bad]{_worker(data)}[/], fence {data['fence']}"
        case "budget.reserved":
            return f"{data['tokens']} tokens"
        case "action.confirmed" if "evidenceRef" in data:
            return f"{data['actionId']}, by evidence"
        case _:
            return str(data.get("actionId", ""))


def _worker(data: dict[str, Any]) -> str:
    return str(data["workerId"]).rpartition("/")[2]


async def _line(stage: Stage, worker: Child, pattern: str, what: str) -> "re.Match[str]":
    line = await stage.wait(worker.find_line(pattern), what)
    if line is None:
        raise worker.failed(f"The {worker.name} ended before its time.", "Its last lines should say why.")
    return line


async def _recovery_required(party: Party) -> dict[str, Any]:
    while True:
        shown: dict[str, Any] = await party.asked("alice", "tasks", "get", "party")
        if "recovery-required" in shown["conditions"]:
            return shown
        await asyncio.sleep(0.2)


async def _pending(party: Party) -> dict[str, Any]:
    await party.command("alice", "tasks", "wait", "party", "--or-approval")
    (approval,) = await party.asked("bob", "approvals", "list")
    return dict(approval)
