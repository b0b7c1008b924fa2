"""Fixtures for all tests, and the rule for servers that may not be installed."""

import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog

# Before anything imports it: its assertions are those of tests.
pytest.register_assert_rewrite("relay_service.store.contract")
pytest.register_assert_rewrite("durable_service.store.contract")

if TYPE_CHECKING:
    from service_common.clocks import ManualClock

_SETTINGS_PREFIXES = ("RELAY_", "DURABLE_", "SEALWORK_")
_SERVER_PROGRAMS = {
    "valkey": ("valkey-server", "redis-server"),
    "postgres": ("postgres",),
    "mongo": ("mongod",),
}


def pytest_configure() -> None:
    # Before collection, as a module may read its settings when it is imported.
    for name in [name for name in os.environ if name.startswith(_SETTINGS_PREFIXES)]:
        del os.environ[name]
    # A shell starts what it runs in the background deaf to Ctrl-C, and every process of a test inherits that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("server"):
        find_server(*marker.args)


def find_server(name: str) -> str:
    """Finds the program of a server; without one the test skips, and fails where CI=true."""
    programs = _SERVER_PROGRAMS[name]
    for program in programs:
        if path := shutil.which(program):
            return path
    # Not above: what it brings would be imported before its assertions can be rewritten.
    from tests.harness.servers import require

    require(f"{name} is not installed: none of {', '.join(programs)} is on the PATH")
    raise AssertionError("a missing server ends the test")


@pytest.fixture
def require_server() -> Callable[[str], str]:
    """Takes the name of a server (valkey, postgres, mongo) and answers with the path of its program."""
    return find_server


@pytest.fixture
def manual_clock() -> "ManualClock":
    """A clock that stands at 1,700,000,000,000 ms until a test advances it."""
    from service_common.clocks import ManualClock

    return ManualClock(1_700_000_000_000)


@pytest.fixture
def tmp_unix_socket() -> Iterator[Path]:
    """A path for a Unix socket. Not below `tmp_path`: the kernel takes 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="socket-") as folder:
        yield Path(folder) / "s"


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """Commands that run within a test set up the logs of the whole process; the next test starts afresh."""
    configuration = structlog.get_config()
    root, client = logging.getLogger(), logging.getLogger("sealwork")
    levels = root.level, client.level
    handlers = list(root.handlers), list(client.handlers)
    yield
    structlog.configure(**configuration)
    root.setLevel(levels[0])
    client.setLevel(levels[1])
    root.handlers[:], client.handlers[:] = handlers
