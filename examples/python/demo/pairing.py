"""Two devices pair by a code: their owner types one command on each, the operator another one."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

from examples.python.demo import scenery
from examples.python.demo.children import Child, Children
from relay_service.client.keys import Keys


@dataclass(frozen=True)
class PairedNow:
    """A device that has just been approved.

    Attributes:
        label: What its owner calls it.
        code: What it has shown.
        key_id: Key id of the keys that it has made.
        approval: The operator's command, as typed.
        runner_id: What the relay calls it from now on.
    """

    label: str
    code: str
    key_id: str
    approval: str
    runner_id: str


async def pair_devices(
    children: Children, folder: Path, relay: str, parties: scenery.Parties
) -> list[PairedNow]:
    """Pair both devices; each has a folder of its own, which goes by its runner id in the end."""
    waiting = [(label, await _begin(children, folder / label, relay, label)) for label in scenery.LABELS]
    paired = await asyncio.gather(
        *(_approve(children, folder, relay, label, device) for label, device in waiting)
    )
    for each in paired:
        home = (folder / each.label).rename(folder / each.runner_id)
        parties.devices[each.runner_id] = Keys.load(home / "keys.json").public
    return paired


async def _begin(children: Children, home: Path, relay: str, label: str) -> Child:
    argv = [*scenery.program("relay-daemon", "relay_service.client.daemon_cli"), "pair", "--relay", relay]
    device = await children.start(
        f"{label} pairing", [*argv, "--label", label, "--keys", str(home / "keys.json")]
    )
    device.expendable = True
    return device


async def _approve(children: Children, folder: Path, relay: str, label: str, device: Child) -> PairedNow:
    code = await _shown(children, device, r"^  code +(\S+)")
    key_id = await _shown(children, device, r"^  key id +(\S+)")
    command = ["approve", code, "--owner", scenery.OWNER]
    approval = await scenery.decide(children, folder, relay, command)
    await children.while_alive(device.end(), scenery.START_SECONDS, f"{label} to be paired")
    if device.exit_status != 0:
        raise device.failed(f"The device {label} was not paired.", "Its last lines, above, should say why.")
    pairing = json.loads((folder / label / "keys.pairing.json").read_text("utf-8"))
    return PairedNow(label, code, key_id, approval, pairing["runner_id"])


async def _shown(children: Children, device: Child, pattern: str) -> str:
    """What the device shows on the line that the pattern is found in."""
    line = await children.while_alive(
        device.find_line(pattern), scenery.START_SECONDS, f"the {device.name} to show its code"
    )
    if line is None:
        raise device.failed("A device did not come to show a code.", "Its last lines should say why.")
    return line[1]
