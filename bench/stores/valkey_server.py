"""A Valkey server on a loopback port, as an operator would run one, on the server's core."""

import asyncio
import socket
from asyncio import create_subprocess_exec
from asyncio.subprocess import DEVNULL, Process
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.placement import on_server_core
from bench.process_stats import ServerMeter
from bench.processes import end_process
from bench.variant import VariantUnavailableError

_START_SECONDS = 20.0
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.02


def valkey_program() -> Path:
    """The server program.

    Raises:
        VariantUnavailableError: the extra is not installed, or brings no program for this machine.
    """
    try:
        from relay_service.store.embedded_valkey import EmbeddedValkeyError, find_program
    except ImportError as error:
        raise VariantUnavailableError(
            f"needs the extra: pip install 'sealwork[valkey]' ({error.name})"
        ) from None
    try:
        return find_program()
    except EmbeddedValkeyError as error:
        raise VariantUnavailableError(str(error)) from None


class ValkeyServer:
    """A process with an append-only file that is written out once a second.

    The file is not rewritten while it grows: a rewrite copies the process, and would show in the figures of
    whatever is measured at that moment.
    """

    def __init__(self) -> None:
        self._process: Process | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """The address for `ValkeyRoutingStore` and for `--store`."""
        return f"valkey://127.0.0.1:{self._port}"

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Starts it and returns when it serves.

        Raises:
            VariantUnavailableError: there is no program, or it did not come up.
        """
        program = valkey_program()
        self._folder = TemporaryDirectory(prefix="bench-valkey-")
        self._port = _free_port()
        with on_server_core():
            self._process = await create_subprocess_exec(
                str(program), *self._options(), stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
            )
        await self._wait_until_it_serves(self._process)

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await end_process(process, process.wait(), _STOP_SECONDS)
        if self._folder is not None:
            self._folder.cleanup()

    def meter(self) -> ServerMeter:
        """Starts counting what the process takes."""
        return ServerMeter([self.process_id])

    def _options(self) -> list[str]:
        assert self._folder is not None
        options = {
            "port": str(self._port),
            "bind": "127.0.0.1",
            "dir": self._folder.name,
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "auto-aof-rewrite-percentage": "0",
            "maxmemory-policy": "noeviction",
            "logfile": str(Path(self._folder.name) / "log"),
        }
        return [part for name, value in options.items() for part in (f"--{name}", value)]

    async def _wait_until_it_serves(self, process: Process) -> None:
        try:
            async with asyncio.timeout(_START_SECONDS):
                while not await _serves(self._port):
                    if process.returncode is not None:
                        raise VariantUnavailableError(
                            f"the Valkey server ended at once with status {process.returncode}"
                        )
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise VariantUnavailableError("the Valkey server does not answer") from None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _serves(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        writer.write(b"PING\r\n")
        return (await reader.read(64)).startswith(b"+PONG")
    except OSError:
        return False
    finally:
        writer.close()
