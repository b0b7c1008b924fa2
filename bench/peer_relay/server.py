"""A running peer: its fixture, its process, and what that process costs."""

import asyncio
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from bench.peer_relay.installation import Installer
from bench.peer_relay.party import Party
from bench.placement import on_server_core
from bench.process_stats import ServerMeter
from bench.processes import end_process
from bench.variant import VariantUnavailableError

Leases = dict[str, dict[str, str]]
_START_SECONDS = 60.0
_STOP_SECONDS = 5.0


def fixture(sites: Sequence[Party], devices: Sequence[tuple[str, str, Party]]) -> dict[str, Any]:
    """The projection for these sites and devices: every owner consents to the one site of their device.

    Args:
        devices: owner, site id, and the device itself.
    """
    return {
        "sites": [{"siteId": site.caller_id, "site": site.keys.public.to_json()} for site in sites],
        "consents": [{"owner": owner, "siteId": site_id} for owner, site_id, _device in devices],
        "devices": [
            {"owner": owner, "runnerId": device.caller_id, "device": device.keys.public.to_json()}
            for owner, _site_id, device in devices
        ],
    }


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that a device runs when the server starts; the names of the fields are the server's."""

    runnerId: str  # noqa: N815
    siteId: str  # noqa: N815
    stub: dict[str, Any]


class PeerServer:
    """The published relay in a Node process on a loopback port, bound to the server's core."""

    def __init__(self, installer: Installer) -> None:
        self._installer = installer
        self._process: Process | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self.port = 0

    async def start(self, projection: dict[str, Any], running: Sequence[RunningJob] = ()) -> Leases:
        """Starts the process and waits until it listens.

        Args:
            running: jobs that devices hold from the start.

        Returns:
            The leases of those jobs, by device.

        Raises:
            VariantUnavailableError: it is not installed, or did not come up; the message says why.
        """
        installation = await self._installer.installation()
        self._folder = TemporaryDirectory(prefix="bench-peer-")
        setup, leases = self._path("setup.json"), self._path("leases.json")
        setup.write_bytes(orjson.dumps({"fixture": projection, "running": running}))
        command = (str(installation.node), str(installation.script), str(setup), str(leases))
        # Errors go to a file: a pipe that nobody empties would stop the server once it is full.
        with self._path("errors.txt").open("wb") as errors, on_server_core():
            self._process = await create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=errors)
        self.port = await self._announced_port(self._process)
        held: Leases = orjson.loads(leases.read_bytes())
        return held

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await end_process(process, process.communicate(), _STOP_SECONDS)
        if self._folder is not None:
            self._folder.cleanup()

    def meter(self) -> ServerMeter:
        """Starts counting what the process takes."""
        assert self._process is not None
        return ServerMeter([self._process.pid])

    async def _announced_port(self, process: Process) -> int:
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), _START_SECONDS)
            return int(orjson.loads(line)["port"])
        except (TimeoutError, ValueError, KeyError) as error:
            said = self._path("errors.txt").read_text(encoding="utf-8", errors="replace").strip()[-300:]
            reason = f"the published relay did not start: {said or 'it said nothing'}"
            raise VariantUnavailableError(reason) from error

    def _path(self, name: str) -> Path:
        assert self._folder is not None
        return Path(self._folder.name) / name
