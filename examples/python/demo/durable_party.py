"""What steps 6 and 7 run: a durable service, its principals, its workers and the commands of people."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.python.demo.children import Child, Children
from examples.python.demo.scenery import START_SECONDS, program

# Short, so that nobody waits long for the task of a dead worker.
LEASE_SECONDS = 3
ROLES = {
    "alice": ["--role", "submitter", "--role", "operator"],
    "bob": ["--role", "approver"],
    "worker": ["--role", "worker", "--driver", "party", "--driver", "ask"],
}


class Party:
    """The durable service of the demo, with everything in a folder of its own.

    Attributes:
        address: Where it serves.
    """

    def __init__(self, children: Children, folder: Path) -> None:
        self.address = ""
        self._children = children
        self._folder = folder / "durable"
        self._folder.mkdir()

    @property
    def outside(self) -> Path:
        """Everything that has happened outside, a line for each effect."""
        return self._folder / "outside.txt"

    async def add_principals(self) -> list[str]:
        """Make a key for everybody, and return the commands that let them in."""
        commands = []
        for name, roles in ROLES.items():
            public = await self._run("keys", "new", f"{name}.key")
            known = ["principals", "--file", "principals.json", "add", name, "--tenant", "demo", *roles]
            await self._run(*known, "--key", public)
            commands.append(" ".join(["durable-service", *known, "--key", f"{public[:6]}…"]))
        return commands

    async def serve(self) -> str:
        """Start the service on a free port, and return the command."""
        argv = ["serve", "--dev", "--principals", "principals.json"]
        argv += ["--store", "sqlite:///tasks.db", "--lease", f"{LEASE_SECONDS}s"]
        service = await self._children.start(
            "durable service",
            [*self._program(), *self._placed(argv), "--listen", "127.0.0.1:0", "--log-format", "json"],
        )
        line = await self._children.while_alive(
            service.find_line(r'"port":(\d+).*"event":"durable service is serving"'),
            START_SECONDS,
            "the durable service to serve",
        )
        if line is None:
            raise service.failed("The durable service did not start.", "Its last lines should say why.")
        self.address = f"127.0.0.1:{line[1]}"
        return shlex.join(["durable-service", *argv])

    async def start_worker(self, name: str, *options: str, script: str) -> Child:
        """Start a worker process."""
        argv = [sys.executable, str(Path(__file__).with_name(script)), "--address", self.address]
        argv += ["--name", name, "--key", str(self._folder / "worker.key")]
        return await self._children.start(name, [*argv, *options])

    async def command(self, principal: str, *argv: str) -> str:
        """Run a command of the service as one of its principals, and return what it printed."""
        known = ["--address", self.address, "--principal", principal]
        return await self._run(*argv, *known, "--key", str(self._folder / f"{principal}.key"))

    async def asked(self, principal: str, *argv: str) -> Any:
        """Run a command for what it tells to programs."""
        return json.loads(await self.command(principal, *argv, "--json"))

    async def journal(self) -> list[dict[str, Any]]:
        """Return the journal of the task."""
        text = await self.command("alice", "events", "party", "--json")
        return [json.loads(line) for line in text.splitlines()]

    async def _run(self, *argv: str) -> str:
        name = shlex.join(["durable-service", *argv[:2]])
        return await self._children.run(name, [*self._program(), *self._placed(argv)])

    def _placed(self, argv: Sequence[str]) -> list[str]:
        """Return the words with our files where they are."""
        placed = []
        for word in argv:
            if word.endswith((".json", ".key")) and not word.startswith("/"):
                placed.append(str(self._folder / word))
            else:
                placed.append(word.replace("sqlite:///", f"sqlite:///{self._folder}/"))
        return placed

    def _program(self) -> list[str]:
        return program("durable-service", "durable_service.cli")
