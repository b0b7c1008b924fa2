"""PostgreSQL servers for tests, and what the contract needs of a store on one.

`postgres_server` is one server for the whole run; `fresh_database` makes an empty place on it. A test that
stops or kills its server starts a `PostgresServer` of its own.
"""

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest

from durable_service.store.contract import CONTRACT_LIMITS
from tests.harness.servers import free_port, require

try:
    import psycopg

    from durable_service.store.postgres import PostgresTaskStore

    _NO_EXTRA = ""
except ImportError as error:
    _NO_EXTRA = f"the extra 'postgres' is not installed: {error}"

USER = "tester"
_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin", "/opt/homebrew/opt/*/bin")
_numbers = itertools.count(1)


def find_programs() -> Path | None:
    """The folder of initdb and postgres, of the newest release there is."""
    found = [Path(name).resolve().parent for name in filter(None, [shutil.which("initdb")])]
    for place in _PLACES:
        root, _, pattern = place.partition("*")
        base = Path(root) if not pattern else Path(root).parent
        names = [Path(root)] if not pattern else base.glob(Path(root).name + "*" + pattern)
        found += [folder for folder in names if (folder / "initdb").exists()]
    return max(found, key=str, default=None)


def require_postgres() -> None:
    """Skips what needs a server or the extra where there is none; with CI=true that fails."""
    require(_NO_EXTRA or ("" if find_programs() else "no PostgreSQL server is installed (initdb, postgres)"))


@dataclass
class PostgresServer:
    """A cluster of its own on a loopback port and a socket.

    Attributes:
        durable: as a real one, which survives `kill`; without it the server is faster.
        settings: further settings of the server, such as `{"max_connections": "10"}`.
    """

    durable: bool = True
    settings: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    folder: Path = field(init=False)
    process: "subprocess.Popen[bytes] | None" = None

    def __post_init__(self) -> None:
        programs = find_programs()
        assert programs is not None
        self._programs = programs
        # The server refuses to run as root.
        self._account = pwd.getpwnam("postgres" if _exists("postgres") else "nobody") if _is_root() else None
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))
        if self._account is not None:
            os.chown(self.folder, self._account.pw_uid, self._account.pw_gid)
        try:
            self._initialize()
        except BaseException:
            self.remove()
            raise

    def url(self, database: str = "postgres", user: str = USER, password: str = "") -> str:
        """The form of `--store`, over TCP."""
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> "list[tuple[object, ...]]":
        """Runs a statement as the superuser."""
        with psycopg.connect(self.url(database), autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Starts it and returns when it serves."""
        log = (self.folder / "log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [*self._identity(), str(self._programs / "postgres"), "-D", str(self.folder / "data")],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        try:
            self._wait_until_it_serves()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ends it in order; connections are ended by it."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Ends the server and its children without a chance to write anything."""
        if self.process is not None and self.process.poll() is None:
            # The children too: as long as one of them lives, no new server is let into the folder.
            processes = self._all_processes()
            for pid in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()
            while any(map(_lives, processes)):
                time.sleep(0.005)
            self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """Lets it hang: connections stay open and nothing answers."""
        for pid in self._all_processes():
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in self._all_processes():
            os.kill(pid, signal.SIGCONT)

    def remove(self) -> None:
        """Ends it and deletes its files."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _initialize(self) -> None:
        subprocess.run(
            [
                *self._identity(),
                *(str(self._programs / "initdb"), "-D", str(self.folder / "data"), "-U", USER),
                *("--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"),
            ],
            check=True,
            capture_output=True,
            cwd=self.folder,
        )
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "max_connections": "100",
            "shared_buffers": "32MB",
            "fsync": "on" if self.durable else "off",
            "synchronous_commit": "on" if self.durable else "off",
            # Its transactions would hold up the order of changes now and then.
            "autovacuum": "off",
            "log_min_messages": "warning",
            "timezone": "UTC",
            **self.settings,
        }
        with (self.folder / "data" / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def _wait_until_it_serves(self) -> None:
        assert self.process is not None
        while self.process.poll() is None:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url(), connect_timeout=10).close()
                return
        raise AssertionError((self.folder / "log").read_text())

    def _end(self, how: int) -> None:
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait()
        self.process = None

    def _all_processes(self) -> list[int]:
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [self.process.pid, *map(int, children.split())]

    def _identity(self) -> list[str]:
        """What a command begins with so that it runs as somebody else.

        Not `subprocess`'s own way: it forks, which a process with gRPC at work in it does not always survive.
        """
        if self._account is None:
            return []
        account = self._account
        return ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests, fast and not durable; skipped or failed where there is none."""
    require_postgres()
    with PostgresServer(durable=False) as server:
        yield server


def fresh_database(server: PostgresServer) -> str:
    """The URL of a new, empty schema: for a store it is a database of its own, and it is made much faster."""
    name = f"fresh_{next(_numbers)}"
    server.execute(f"CREATE SCHEMA {name}")
    return f"{server.url()}?options=-csearch_path%3D{name}"


# The store's clock, standing until it is moved on.
_STANDING_CLOCK = """
CREATE TABLE test_clock (now_ms bigint NOT NULL);
INSERT INTO test_clock VALUES (1700000000000);
CREATE OR REPLACE FUNCTION durable_wall_ms() RETURNS bigint LANGUAGE sql VOLATILE
RETURN (SELECT now_ms FROM test_clock);
UPDATE durable_clock SET floor_ms = 0, ahead_ms = 0;
"""


def stop_clock(url: str) -> None:
    """Lets the time of a store that nobody uses stand at 1,700,000,000,000 ms, until it is moved on."""
    _execute(url, _STANDING_CLOCK)


def move_clock(url: str, milliseconds: int) -> None:
    """Moves a clock on that was stopped."""
    _execute(url, f"UPDATE test_clock SET now_ms = now_ms + {milliseconds}")


@dataclass
class PostgresHarness:
    """A store on a database of its own, whose clock stands until it is advanced."""

    server: PostgresServer
    url: str = field(init=False)
    store: "PostgresTaskStore" = field(init=False)

    async def start(self) -> None:
        self.url = fresh_database(self.server)
        await (await PostgresTaskStore.open(self.url, size=1)).close()
        stop_clock(self.url)
        self.store = await self._open()

    async def advance(self, milliseconds: int) -> None:
        move_clock(self.url, milliseconds)

    async def reopen(self) -> bool:
        await self.store.close()
        self.store = await self._open()
        return True

    async def _open(self) -> "PostgresTaskStore":
        return await PostgresTaskStore.open(self.url, limits=CONTRACT_LIMITS)


def _execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _is_root() -> bool:
    return os.geteuid() == 0


def _exists(account: str) -> bool:
    try:
        pwd.getpwnam(account)
    except KeyError:
        return False
    return True
