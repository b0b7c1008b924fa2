"""A PostgreSQL server with an empty cluster: `python -m bench.databases.postgres_keeper`."""

import os
import pwd
import secrets
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psycopg

from bench.databases.keeper import free_port, group_of, keep
from bench.databases.programs import postgres_program

# Which of them there is on this machine runs the server where this process is root's: it refuses root.
_USERS = ("postgres", "nobody")
# Each process of the service opens eight and one to listen, and the bare loop eight.
_CONNECTIONS = 200


class PostgresServer:
    """A server with its own defaults, fsync and synchronous_commit among them, the connections aside."""

    stop_signal = signal.SIGINT
    stop_at_once_signal = signal.SIGQUIT

    def __init__(self) -> None:
        self.user = _unprivileged_user()
        self._port = free_port()
        self._password = secrets.token_urlsafe()

    def prepare(self, folder: Path) -> Sequence[str]:
        cluster, password = folder / "cluster", folder / "password"
        cluster.mkdir()
        password.write_text(self._password)
        if self.user is not None:
            for path in (folder, cluster, password):
                shutil.chown(path, self.user)
        subprocess.run(
            [
                postgres_program("initdb"),
                f"--pgdata={cluster}",
                "--username=bench",
                "--auth=scram-sha-256",
                f"--pwfile={password}",
                "--encoding=UTF8",
                "--locale=C",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=folder,
            user=self.user,
            group=group_of(self.user),
            extra_groups=None if self.user is None else [],
        )
        options = {
            "listen_addresses": "127.0.0.1",
            "port": self._port,
            "unix_socket_directories": "",
            "max_connections": _CONNECTIONS,
        }
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return [postgres_program("postgres"), "-D", str(cluster), *settings]

    def create_database(self, name: str) -> str:
        try:
            with psycopg.connect(self._url("postgres"), autocommit=True, connect_timeout=5) as connection:
                connection.execute(f'CREATE DATABASE "{name}"'.encode())
        except psycopg.OperationalError as error:
            raise ConnectionError(str(error)) from error
        return self._url(name)

    def _url(self, database: str) -> str:
        return f"postgresql://bench:{self._password}@127.0.0.1:{self._port}/{database}"


def _unprivileged_user() -> str | None:
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in _USERS if name in known)


if __name__ == "__main__":
    keep(PostgresServer())
