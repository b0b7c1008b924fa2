"""Servers of other projects that tests start, and the rule for those that are not installed."""

import contextlib
import os
import random
import socket
import subprocess

import pytest


def require(missing: str) -> None:
    """Skips a test at home, and fails it where CI=true, with what is missing; empty when nothing is."""
    if missing and os.environ.get("CI") == "true":
        pytest.fail(missing, pytrace=False)
    if missing:
        pytest.skip(missing)


def free_port() -> int:
    """A port that is free until its server binds it, and again while that server is away.

    It is none of those that the system gives to outgoing connections: one of them would take it in between,
    even an attempt to reach the very server, which can meet itself.
    """
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class ServerProcess:
    """The ends of a server that is one process."""

    process: subprocess.Popen[bytes] | None

    def kill(self) -> None:
        """Ends it without a chance to write anything."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait()
