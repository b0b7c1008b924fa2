"""What the demo sets up: keys, the operator's decisions, a configuration for each device."""

import asyncio
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from examples.python.demo.children import Child, Children
from examples.python.demo.model import Model
from examples.python.demo.operators_view import Operator
from relay_service.client.keys import Keys
from relay_service.core.identity import PublicIdentity

SITE_ID = "poems.example"
OWNER = "alice"
LABELS = ("alice-desktop", "alice-laptop")
# What the operator keeps: the projection and a key.
OPERATORS = "relay"
# Short, so that the take-over of a job does not keep anybody waiting.
LEASE_SECONDS = 6
START_SECONDS = 40.0


@dataclass(frozen=True)
class Parties:
    """Who takes part, by their keys.

    Attributes:
        operator: Whoever runs the relay.
        site: The site.
        devices: The devices, by runner id; each has its own keys, and these are the public halves.
    """

    operator: Keys
    site: Keys
    devices: dict[str, PublicIdentity] = field(default_factory=dict)


async def make_parties(children: Children, folder: Path) -> Parties:
    """Make what the operator needs, and the site's keys, whose public half its owner hands over in a file."""
    argv = [*program("relay-service", "relay_service.cli"), "init", str(folder / OPERATORS)]
    await children.run("relay-service init", argv)
    parties = Parties(Keys.load(folder / OPERATORS / "operator-keys.json"), Keys.generate())
    identity = json.dumps(parties.site.public.to_json())
    (folder / f"{SITE_ID}.json").write_text(identity, encoding="utf-8")
    return parties


def decisions() -> list[list[str]]:
    """Return the operator's commands; paths are relative to the folder of the demo."""
    return [
        ["sites", "add", SITE_ID, "--identity", f"{SITE_ID}.json"],
        ["consents", "grant", "--owner", OWNER, "--site", SITE_ID],
    ]


async def decide(children: Children, folder: Path, relay: str, command: Sequence[str]) -> str:
    """Carry a command of the operator out at the relay, and return it as a person would type it."""
    argv = [*program("relay-service", "relay_service.cli"), *_absolute(command, folder), "--relay", relay]
    key = {"RELAY_OPERATOR_KEY": str(folder / OPERATORS / "operator-keys.json")}
    await children.run(shlex.join(["relay-service", *command[:2]]), argv, key)
    return shlex.join(["relay-service", *command, "--relay", relay])


async def start_relay(children: Children, folder: Path) -> tuple[Child, str]:
    """Start a relay on a free port of this machine, and return it with its address once it serves."""
    argv = [*program("relay-service", "relay_service.cli"), *_absolute(serve_command("127.0.0.1:0"), folder)]
    relay = await children.start("relay", [*argv, "--log-format", "json"])
    line = await children.while_alive(
        relay.find_line(r'"port":(\d+).*"event":"relay is serving"'), START_SECONDS, "the relay to serve"
    )
    if line is None:
        raise relay.failed("The relay did not start.", "Its last lines, above, should say why.")
    return relay, f"127.0.0.1:{line[1]}"


def serve_command(listen: str) -> list[str]:
    """Return the operator's command that starts the relay, without its name."""
    files = ["--projection", f"{OPERATORS}/projection.json"]
    files += ["--operator-identity", f"{OPERATORS}/operator.json"]
    return ["serve", "--dev", "--listen", listen, *files, "--lease", f"{LEASE_SECONDS}s"]


def write_device(folder: Path, runner_id: str, model: Model) -> Path:
    """Write what one device answers with; return its configuration file. Its pairing says the rest."""
    configuration = folder / runner_id / "daemon.toml"
    configuration.write_text(f"slots = 1\n\n{model.configuration}", encoding="utf-8")
    return configuration


async def start_devices(
    children: Children, folder: Path, parties: Parties, model: Model, operator: Operator
) -> dict[str, Child]:
    """Start the paired devices, and return them by runner id once the relay has a stream of each."""
    devices = {}
    for runner_id in parties.devices:
        configuration = write_device(folder, runner_id, model)
        argv = [*program("relay-daemon", "relay_service.client.daemon_cli"), "run"]
        devices[runner_id] = await children.start(
            # Without a grace: nobody wants to wait for the rest of an answer at the end of a demo.
            runner_id,
            [*argv, "--config", str(configuration), "--grace", "0"],
        )
    await children.while_alive(_all_connected(operator), START_SECONDS, "the devices to connect")
    return devices


async def _all_connected(operator: Operator) -> None:
    while True:
        if all(daemon.connected and daemon.matrix for daemon in await operator.daemons()):
            return
        await asyncio.sleep(0.05)


def prompt_log(folder: Path, runner_id: str) -> Path:
    """Return the file in which a device writes down every prompt before it runs."""
    return folder / runner_id / "prompts.jsonl"


def program(name: str, module: str) -> list[str]:
    """Return how to start one of our commands, installed or not."""
    script = Path(sys.executable).with_name(name)
    if script.exists():
        return [str(script)]
    return [sys.executable, "-c", f"from {module} import main; main()"]


def _absolute(command: Sequence[str], folder: Path) -> list[str]:
    return [str(folder / word) if word.endswith(".json") else word for word in command]
