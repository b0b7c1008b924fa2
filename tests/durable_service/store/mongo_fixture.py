"""Servers that speak MongoDB's protocol, for tests: each a process of its own on a free loopback port.

A test takes the session's server by the fixture `mongo_server` and a fresh database by `fresh_database`; one
that stops, kills or holds up its server starts its own with `MongoServer`.
"""

import gc
import importlib.util
import itertools
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.servers import ServerProcess, free_port, require

if TYPE_CHECKING:
    from durable_service.store.mongo import MongoTaskStore

__all__ = [
    "MISSING",
    "MongoServer",
    "forget_sockets",
    "fresh_database",
    "listened_store",
    "mongo_server",
    "require_mongo",
]

LAUNCHER = Path(__file__).with_name("mongo_launcher.py")
MISSING = ", ".join(
    package for package in ("pymongo", "secantus") if importlib.util.find_spec(package) is None
)
_databases = itertools.count(1)


def require_mongo() -> None:
    """Skips what needs the server where it is not installed; with CI=true that fails."""
    require(MISSING and f"not installed: {MISSING} (the extra 'mongo', and the test server SecantusDB)")


@dataclass
class MongoServer(ServerProcess):
    """A server with its files in a folder.

    Attributes:
        options: further arguments, such as `--auth`.
        durable: what it confirmed is on the disk; faster without.
    """

    folder: Path
    options: tuple[str, ...] = ()
    durable: bool = True
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Without a database."""
        return f"mongodb://127.0.0.1:{self.port}"

    @property
    def clock(self) -> Path:
        return self.folder / "clock"

    def hold_clock(self, now_ms: int) -> None:
        """The server's time stands there until it is set anew; 0 lets it run by the machine's again."""
        with self.clock.open("r+b") as file:
            file.write(now_ms.to_bytes(8, "little"))

    def start(self) -> None:
        """Starts it and returns when it serves."""
        if not self.clock.exists():
            self.clock.write_bytes(bytes(8))
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        arguments = ["--port", str(self.port), "--storage-path", str(data), *self.options]
        if self.durable:
            arguments.append("--sync-on-commit")
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(LAUNCHER), str(self.clock), *arguments],
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        try:
            self._wait_until_it_serves()
        except BaseException:
            self.kill()
            raise

    def hang(self) -> None:
        """It answers nothing from here on, and keeps its connections."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def _wait_until_it_serves(self) -> None:
        from pymongo import MongoClient
        from pymongo.errors import PyMongoError

        assert self.process is not None
        deadline = time.monotonic() + 30
        with MongoClient[dict[str, object]](self.url, serverSelectionTimeoutMS=200) as client:
            while self.process.poll() is None and time.monotonic() < deadline:
                try:
                    client.admin.command("hello")
                    return
                except PyMongoError:
                    continue
        raise AssertionError((self.folder / "log").read_text())


def fresh_database(server: MongoServer) -> str:
    """The URL of a database that nobody has used."""
    return f"{server.url}/test_{next(_databases)}?directConnection=false"


@asynccontextmanager
async def listened_store(
    server: MongoServer, monkeypatch: pytest.MonkeyPatch, listener: object
) -> AsyncIterator["MongoTaskStore"]:
    """A store in a fresh database, whose driver tells the listener what it asks."""
    from durable_service import mongo_connection
    from durable_service.store.mongo import MongoTaskStore

    connect = mongo_connection.Client

    def client(url: str, **options: Any) -> Any:
        return connect(url, event_listeners=[listener], **options)

    monkeypatch.setattr(mongo_connection, "Client", client)
    store = await MongoTaskStore.open(fresh_database(server))
    yield store
    await store.close()


def forget_sockets() -> None:
    """Lets go of what the driver leaves open when it is closed in the middle of connecting."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def mongo_server() -> Iterator[MongoServer]:
    """One server for the whole session, whose clock runs unless a test holds it."""
    require_mongo()
    with tempfile.TemporaryDirectory(prefix="mongo-") as folder:
        server = MongoServer(Path(folder), durable=False)
        server.start()
        yield server
        server.stop()
