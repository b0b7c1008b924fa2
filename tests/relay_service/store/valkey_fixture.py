"""Valkey servers for tests, and what the contract needs of a store on one."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from relay_service.core.quotas import Quotas
from relay_service.store.base import StoreUnavailable
from relay_service.store.contract import CONTRACT_QUOTAS
from tests.harness.servers import ServerProcess, free_port, require

__all__ = [
    "MISSING",
    "EmbeddedValkey",
    "EmbeddedValkeyError",
    "TcpServer",
    "Valkey",
    "ValkeyHarness",
    "ValkeyRoutingStore",
    "back",
    "empty",
    "find_program",
    "free_port",
    "require_valkey",
    "site_tag",
    "tag_of_lease",
]

Answer = TypeVar("Answer")

try:
    from valkey import Valkey
    from valkey.exceptions import ValkeyError

    from relay_service.store.embedded_valkey import EmbeddedValkey, EmbeddedValkeyError, find_program
    from relay_service.store.valkey import ValkeyRoutingStore
    from relay_service.store.valkey_names import site_tag, tag_of_lease

    MISSING = ""
except ImportError as error:
    MISSING = f"the extra 'valkey' is not installed: {error}"


def __getattr__(name: str) -> None:
    """Lets modules name what the extra would bring; `require_valkey` ends their tests before they use it."""
    if not MISSING or name not in __all__:
        raise AttributeError(name)


def require_valkey() -> None:
    """Skips what needs the extra where it is not installed; with CI=true that fails."""
    require(MISSING)


@dataclass
class TcpServer(ServerProcess):
    """A server on a loopback port with an append-only file.

    It runs as a cluster of one, which refuses whatever touches two hash slots in one step; without
    `cluster` it can have a replica.
    """

    folder: Path
    port: int = field(default_factory=free_port)
    appendfsync: str = "everysec"
    cluster: bool = True
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"valkey://127.0.0.1:{self.port}"

    @property
    def client(self) -> "Valkey":
        return Valkey.from_url(self.url, socket_timeout=10)

    def start(self) -> None:
        """Starts it and returns when it serves."""
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": self.appendfsync,
            "logfile": str(self.folder / "log"),
        }
        if self.cluster:
            options |= {"cluster-enabled": "yes", "cluster-port": str(free_port())}
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        self.process = subprocess.Popen([str(find_program()), *arguments], stdout=subprocess.DEVNULL)
        try:
            self._wait_until_it_serves()
        except BaseException:
            self.kill()
            raise

    def _wait_until_it_serves(self) -> None:
        assert self.process is not None
        with self.client as client:
            while self.process.poll() is None:
                try:
                    if self.cluster and b"cluster_slots_assigned:0" in client.execute_command(
                        "CLUSTER", "INFO"
                    ):
                        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
                    client.set("{ready}", 1)
                    return
                except ValkeyError:
                    continue
        raise AssertionError((self.folder / "log").read_text())


@dataclass
class ValkeyHarness:
    """A store on a server; its clock begins at the server's time and stands until it is advanced."""

    url: str
    quotas: Quotas = CONTRACT_QUOTAS
    now_ms: int | None = None
    store: "ValkeyRoutingStore" = field(init=False)

    def __post_init__(self) -> None:
        self.store = ValkeyRoutingStore(self.url, quotas=self.quotas, clock_setting=self._clock_setting)

    async def start(self) -> None:
        empty(self.url)
        await self.store.start(20)
        self.now_ms = await self.store.now()

    async def advance(self, milliseconds: int) -> None:
        assert self.now_ms is not None
        self.now_ms += milliseconds

    async def delivered(self) -> None:
        await self.store.delivered()

    async def spoil_stub(self, site_id: str, job_id: str) -> bool:
        with Valkey.from_url(self.url) as client:
            client.hset(f"sealwork:{{{site_tag(site_id)}}}:jobs", job_id, b"\xff{not a record")
        return True

    def _clock_setting(self) -> str:
        return "" if self.now_ms is None else str(self.now_ms)


async def back(operation: Callable[[], Awaitable[Answer]]) -> Answer:
    """Asks until the store has come back, as a caller does that is told to try again."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await operation()
            except StoreUnavailable:
                await asyncio.sleep(0)


def empty(url: str) -> None:
    with Valkey.from_url(url) as client:
        client.flushall()
