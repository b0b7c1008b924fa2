"""A running relay of ours: its projection, its process, and what that process costs."""

import asyncio
import os
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import orjson

from bench.peer_relay.party import Party
from bench.placement import on_server_core
from bench.process_stats import ServerMeter
from bench.processes import end_process
from bench.variant import VariantUnavailableError
from relay_service.config import PREFIX
from relay_service.core.projection import Consent, ProjectedDevice, ProjectedSite, Projection
from relay_service.projection_file import format_projection

_START_SECONDS = 60.0
_STOP_SECONDS = 5.0
_KEPT_LINES = 5
_COMMAND = (sys.executable, "-m", "relay_service", "serve", "--dev", "--listen", "127.0.0.1:0")
_SETTINGS = ("--log-format", "json", "--drain-grace", "1s")


def projection_of(sites: Sequence[Party], devices: Sequence[tuple[str, str, Party]]) -> Projection:
    """The projection for these sites and devices: every owner consents to the one site of their device.

    Args:
        devices: owner, site id, and the device itself.
    """
    return Projection(
        sites=tuple(ProjectedSite(site.caller_id, site.keys.public) for site in sites),
        consents=tuple(Consent(owner, site_id) for owner, site_id, _device in devices),
        devices=tuple(
            ProjectedDevice(owner, device.caller_id, device.keys.public)
            for owner, _site_id, device in devices
        ),
    )


class Deployment(Protocol):
    """Relays that serve one set of sites and devices."""

    @property
    def site_address(self) -> str:
        """Where sites connect."""
        ...

    @property
    def device_address(self) -> str:
        """Where devices connect."""
        ...

    async def start(self, projection: Projection) -> None:
        """Starts everything and waits until it serves.

        Raises:
            VariantUnavailableError: it did not come up; the message says why.
        """
        ...

    async def stop(self) -> None:
        """Ends everything that was started."""
        ...

    def meter(self) -> ServerMeter:
        """Starts counting what all its processes take."""
        ...


class OurServer:
    """`relay-service serve` in a process of its own on a loopback port, bound to the server's core.

    Args:
        options: further options of the command.
    """

    def __init__(self, *options: str) -> None:
        self._options = options
        self._process: Process | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self._log: asyncio.Task[None] | None = None
        self._last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self.address = ""

    async def start(self, projection: Projection) -> None:
        """Starts the process and waits until it listens.

        Raises:
            VariantUnavailableError: it did not come up; the message says why.
        """
        self._folder = TemporaryDirectory(prefix="bench-relay-")
        path = Path(self._folder.name) / "projection.json"
        path.write_text(format_projection(projection), encoding="utf-8")
        command = (*_COMMAND, *_SETTINGS, "--projection", str(path), *self._options)
        with on_server_core():
            self._process = await create_subprocess_exec(
                *command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, env=_environment(os.environ)
            )
        listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        # Read to the end: a pipe that nobody empties would stop the server once it is full.
        self._log = asyncio.create_task(self._read_log(self._process, listening))
        try:
            self.address = await asyncio.wait_for(listening, _START_SECONDS)
        except TimeoutError:
            raise self._unavailable("said nothing of an address") from None

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await end_process(process, process.wait(), _STOP_SECONDS)
        if self._log is not None:
            await self._log
        if self._folder is not None:
            self._folder.cleanup()

    @property
    def site_address(self) -> str:
        """Where sites connect."""
        return self.address

    @property
    def device_address(self) -> str:
        """Where devices connect."""
        return self.address

    @property
    def process_ids(self) -> list[int]:
        """The process, as a list of one."""
        assert self._process is not None
        return [self._process.pid]

    def meter(self) -> ServerMeter:
        """Starts counting what the process takes."""
        return ServerMeter(self.process_ids)

    async def _read_log(self, process: Process, listening: "asyncio.Future[str]") -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            text = line.decode(errors="replace").strip()
            self._last_lines.append(text)
            address = announced_address(text)
            if address and not listening.done():
                listening.set_result(address)
        if not listening.done():
            listening.set_exception(self._unavailable(f"ended with status {await process.wait()}"))

    def _unavailable(self, what: str) -> VariantUnavailableError:
        said = " | ".join(self._last_lines)[-300:]
        return VariantUnavailableError(f"the relay {what}{': ' if said else ''}{said}")


def announced_address(line: str) -> str:
    """The address in the line of the log that says where the relay serves; empty for any other line."""
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(event, dict) or event.get("event") != "relay is serving":
        return ""
    return str(event["address"])


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """What this process was given, without a person's settings of a relay, and the code that runs here."""
    kept = {name: value for name, value in variables.items() if not name.startswith(PREFIX)}
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
