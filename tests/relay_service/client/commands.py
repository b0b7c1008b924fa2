"""Running the commands of the clients as a person would."""

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from relay_service.client.daemon_cli import relay_daemon
from relay_service.client.keys import Keys
from relay_service.client.site_cli import relay_site
from tests.harness.processes import RunningProcess, running

ROOT = Path(__file__).resolve().parents[3]
SITE = "from relay_service.client.site_cli import main; main()"
DAEMON = "from relay_service.client.daemon_cli import main; main()"
ENVIRONMENT = {"PYTHONPATH": f"{ROOT}:{ROOT / 'protos' / 'gen' / 'python'}"}


@dataclass
class Ended:
    """What a command left behind."""

    status: int
    stdout: list[str]
    stderr: list[str]

    @property
    def error(self) -> str:
        """Its one line of error."""
        (line,) = [line for line in self.stderr if line.startswith("Error: ")]
        return line


def site(*arguments: str) -> Result:
    """Runs relay-site in this process, for what needs no relay."""
    return CliRunner().invoke(relay_site, arguments, prog_name="relay-site")


def daemon(*arguments: str) -> Result:
    return CliRunner().invoke(relay_daemon, arguments, prog_name="relay-daemon")


def command(program: str, *arguments: str, **options: Any) -> Any:
    """A command as a process of its own."""
    return running([sys.executable, "-c", program, *arguments], env=ENVIRONMENT, cwd=ROOT, **options)


async def end_of(program: str, *arguments: str) -> Ended:
    """Runs a command to its end."""
    async with command(program, *arguments) as process:
        return await ended(process)


async def ended(process: RunningProcess) -> Ended:
    status = await process.wait()
    await asyncio.sleep(0)
    return Ended(status, process.stdout, process.stderr)


def key_file(folder: Path, keys: Keys, name: str = "keys.json") -> str:
    path = folder / name
    keys.save(path)
    return str(path)


def identity_file(folder: Path, keys: Keys, name: str = "identity.json") -> str:
    path = folder / name
    path.write_text(json.dumps(keys.public.to_json()))
    return str(path)
