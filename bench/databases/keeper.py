"""A process that keeps one database server, so that the server ends when the bench does, however that ends.

It says the server's process id once the server is ready. Each line that it is told is the name of a new
database, and it answers with the database's URL. The end of its standard input, SIGTERM and SIGINT end the
server.
"""

import pwd
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Protocol

_START_SECONDS = 60.0
_POLL_SECONDS = 0.05
# Together less than the bench waits for its child: one that is killed could end nothing.
_STOP_SECONDS = 5.0
_STOP_AT_ONCE_SECONDS = 2.0


class KeptServer(Protocol):
    """How to run one kind of server.

    Attributes:
        user: who runs it, where that is not the user of this process.
        stop_signal: asks it to end soon, and `stop_at_once_signal` to end now.
    """

    @property
    def user(self) -> str | None: ...

    @property
    def stop_signal(self) -> signal.Signals: ...

    @property
    def stop_at_once_signal(self) -> signal.Signals: ...

    def prepare(self, folder: Path) -> Sequence[str]:
        """Makes its files in an empty folder; the command that runs it."""
        ...

    def create_database(self, name: str) -> str:
        """Makes a database that is empty; its URL for `--store`. Raises OSError while it does not serve."""
        ...


def keep(server: KeptServer) -> None:
    """Runs the server until nobody needs it any more."""
    end = _End()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    with TemporaryDirectory(prefix="bench-database-") as name:
        folder = Path(name)
        process = start(server, server.prepare(folder), folder)
        try:
            end.allow()
            _wait_until(lambda: server.create_database("ready"), process, folder)
            print(process.pid, flush=True)
            for line in sys.stdin:
                print(server.create_database(line.strip()), flush=True)
        finally:
            _stop(process, server)


class _End:
    """Ends this process at a signal: one that comes early once there is somebody to end the server.

    What prepares the files of a server goes on for a moment when it is left alone, and then the folder could
    not be removed.
    """

    def __init__(self) -> None:
        self._allowed = False
        self._asked = False

    def __call__(self, *_: object) -> None:
        self._asked = True
        if self._allowed:
            sys.exit(0)

    def allow(self) -> None:
        """From now on at once."""
        self._allowed = True
        if self._asked:
            sys.exit(0)


def start(server: KeptServer, command: Sequence[str], folder: Path) -> "subprocess.Popen[bytes]":
    """Starts the server in a session of its own: Ctrl-C at a terminal is for whoever keeps it."""
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
            user=server.user,
            group=group_of(server.user),
            extra_groups=None if server.user is None else [],
        )


def group_of(user: str | None) -> int | None:
    """The group that this user is of."""
    return None if user is None else pwd.getpwnam(user).pw_gid


def free_port() -> int:
    """A port that is none of those which the system gives to outgoing connections."""
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _wait_until(serves: Callable[[], object], process: "subprocess.Popen[bytes]", folder: Path) -> None:
    deadline = monotonic() + _START_SECONDS
    while process.poll() is None and monotonic() < deadline:
        with suppress(OSError):
            serves()
            return
        sleep(_POLL_SECONDS)
    raise SystemExit((folder / "log").read_text(errors="replace"))


def _stop(process: "subprocess.Popen[bytes]", server: KeptServer) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        # Nothing is to come in between now.
        signal.signal(number, signal.SIG_IGN)
    for number, seconds in (
        (server.stop_signal, _STOP_SECONDS),
        (server.stop_at_once_signal, _STOP_AT_ONCE_SECONDS),
    ):
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return
    process.kill()
    process.wait()
