"""What the demo sets up: keys for everybody, the operator's projection, a configuration for each device."""

import asyncio
import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from examples.python.demo.children import Child, Children
from examples.python.demo.model import Model
from examples.python.demo.operators_view import Operator
from relay_service.client.keys import Keys

SITE_ID = "poems.example"
OWNER = "alice"
RUNNERS = ("alice-desktop", "alice-laptop")
# Short, so that the take-over of a job does not keep anybody waiting.
LEASE_SECONDS = 6
START_SECONDS = 40.0


@dataclass(frozen=True)
class Parties:
    """Who takes part, by their keys.

    Attributes:
        operator: Whoever runs the relay.
        site: The site.
        devices: The devices, by runner id.
    """

    operator: Keys
    site: Keys
    devices: dict[str, Keys]


def make_parties(folder: Path) -> Parties:
    """Make keys, and write each public identity to a file, as its owner would hand it to the operator."""
    devices = {runner_id: Keys.generate() for runner_id in RUNNERS}
    parties = Parties(Keys.generate(), Keys.generate(), devices)
    for name, keys in (("operator", parties.operator), (SITE_ID, parties.site), *devices.items()):
        (folder / f"{name}.json").write_text(json.dumps(keys.public.to_json()), encoding="utf-8")
    return parties


def projection_commands() -> list[list[str]]:
    """Return the operator's commands; paths are relative to the folder of the demo."""
    file = "projection.json"
    identities = [
        ["add-device", file, "--runner-id", runner_id, "--owner", OWNER, "--identity", f"{runner_id}.json"]
        for runner_id in RUNNERS
    ]
    return [
        ["new", file],
        ["add-site", file, "--site-id", SITE_ID, "--identity", f"{SITE_ID}.json"],
        *identities,
        ["consent", file, "--owner", OWNER, "--site-id", SITE_ID],
    ]


async def write_projection(children: Children, folder: Path) -> list[str]:
    """Carry the operator's commands out, and return them as a person would type them."""
    shown = []
    for command in projection_commands():
        typed = ["relay-service", "projection", *command]
        argv = [*program("relay-service", "relay_service.cli"), "projection", *_absolute(command, folder)]
        await children.run(shlex.join(typed[:3]), argv)
        shown.append(shlex.join(typed))
    return shown


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
    files = ["--projection", "projection.json", "--operator-identity", "operator.json"]
    return ["serve", "--dev", "--listen", listen, *files, "--lease", f"{LEASE_SECONDS}s"]


def write_device(folder: Path, runner_id: str, parties: Parties, relay: str, model: Model) -> Path:
    """Write what one device needs into a folder of its own; return its configuration file."""
    home = folder / runner_id
    home.mkdir()
    parties.devices[runner_id].save(home / "keys.json")
    pins = {parties.site.key_id: parties.site.public.to_json()}
    (home / "pins.json").write_text(json.dumps(pins), encoding="utf-8")
    configuration = home / "daemon.toml"
    configuration.write_text(
        f'relay = "{relay}"\nrunner_id = "{runner_id}"\nkeys = "keys.json"\npins = "pins.json"\n'
        f"slots = 1\n\n{model.configuration}",
        encoding="utf-8",
    )
    return configuration


async def start_devices(
    children: Children, folder: Path, parties: Parties, relay: str, model: Model, operator: Operator
) -> dict[str, Child]:
    """Start both devices, and return them by runner id once the relay has a stream of each."""
    devices = {}
    for runner_id in RUNNERS:
        configuration = write_device(folder, runner_id, parties, relay, model)
        argv = [*program("relay-daemon", "relay_service.client.daemon_cli"), "run"]
        devices[runner_id] = await children.start(
            # Without a grace: nobody wants to wait for the rest of an answer at the end of a demo.
            runner_id,
            [*argv, "--config", str(configuration), "--owner", OWNER, "--grace", "0"],
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


def _absolute(command: list[str], folder: Path) -> list[str]:
    return [str(folder / word) if word.endswith(".json") else word for word in command]
