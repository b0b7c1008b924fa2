"""A running peer: its fixture, its process, and what that process costs."""

import asyncio
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from bench.peer_relay.installation import Installation
from bench.peer_relay.party import Party
from bench.placement import pinned
from bench.process_stats import ServerMeter
from bench.variant import VariantUnavailableError

_START_SECONDS = 20.0
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


class PeerServer:
    """The published relay in a Node process on a loopback port, bound to the server's core."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._process: Process | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self.port = 0

    async def start(self, projection: dict[str, Any]) -> None:
        """Starts the process and waits until it listens.

        Raises:
            VariantUnavailableError: it did not come up; the message holds the end of what it printed.
        """
        self._folder = TemporaryDirectory(prefix="bench-peer-")
        path = Path(self._folder.name) / "fixture.json"
        path.write_bytes(orjson.dumps(projection))
        command = pinned([str(self._installation.node), str(self._installation.script), str(path)])
        # Errors go to a file: a pipe that nobody empties would stop the server once it is full.
        with self._errors().open("wb") as errors:
            self._process = await create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=errors)
        self.port = await self._announced_port(self._process)

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.communicate(), _STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
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
            said = self._errors().read_text(encoding="utf-8", errors="replace").strip()[-300:]
            reason = f"the published relay did not start: {said or 'it said nothing'}"
            raise VariantUnavailableError(reason) from error

    def _errors(self) -> Path:
        assert self._folder is not None
        return Path(self._folder.name) / "errors.txt"
