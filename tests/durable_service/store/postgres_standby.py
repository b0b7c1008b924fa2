"""A PostgreSQL primary with a hot standby that confirms every commit, for tests in which it takes over."""

import contextlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

with contextlib.suppress(ImportError):
    import psycopg

from tests.durable_service.store.postgres_fixture import USER, PostgresServer
from tests.harness.waiting import eventually

# Who serves: no superuser, and with a password.
GUEST = "service"
PASSWORD = "s3cret-w0rd"
DATABASE = "tasks"
_RULES = f"""
host all {USER} 127.0.0.1/32 trust
host replication {USER} 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""


@dataclass(kw_only=True)
class PostgresStandby(PostgresServer):
    """A copy of a server that serves, which follows it and answers questions until it is promoted."""

    primary: PostgresServer

    def promote(self) -> None:
        """It takes writes when this returns."""
        assert self.execute("SELECT pg_promote()") == [(True,)]

    def _initialize(self) -> None:
        subprocess.run(
            [
                *(*self._identity(), str(self._programs / "pg_basebackup"), "-D", str(self.folder / "data")),
                *("-h", "127.0.0.1", "-p", str(self.primary.port), "-U", USER),
                *("--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"),
            ],
            check=True,
            capture_output=True,
            cwd=self.folder,
        )
        with (self.folder / "data" / "postgresql.conf").open("a") as file:
            file.write(f"port = '{self.port}'\nunix_socket_directories = '{self.folder}'\n")


@dataclass
class Pair:
    """A database on a primary, and on a standby that confirms what is committed there.

    Attributes:
        url: as `--store` takes it, with both servers.
    """

    primary: PostgresServer
    standby: PostgresStandby

    @property
    def url(self) -> str:
        return self.url_of(self.primary, self.standby) + "?target_session_attrs=read-write"

    def url_of(self, *servers: PostgresServer) -> str:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
        return f"postgresql://{GUEST}:{PASSWORD}@{hosts}/{DATABASE}"

    def demote(self) -> None:
        """The primary keeps its connections and takes no writes."""
        self.primary.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        self.primary.execute("SELECT pg_reload_conf()")
        while self.primary.execute("SHOW default_transaction_read_only") != [("on",)]:
            pass

    async def all_leave(self, server: PostgresServer, application: str = "%") -> None:
        """Waits until no service has a connection to a server."""
        named = f"usename = '{GUEST}' AND application_name LIKE '{application}'"
        asked = f"SELECT application_name, state, query FROM pg_stat_activity WHERE {named}"
        await eventually(
            lambda: not server.execute(asked), 30, lambda: f"nobody there: {server.execute(asked)}"
        )


@contextmanager
def pair_of_servers() -> Iterator[Pair]:
    """Both serve, and no commit is confirmed that the standby has not on its disk."""
    # Faster; processes that are killed lose nothing by it.
    primary = PostgresServer(durable=False, settings={"synchronous_commit": "on"})
    (primary.folder / "data" / "pg_hba.conf").write_text(_RULES)
    with primary:
        primary.execute(f"CREATE ROLE {GUEST} LOGIN PASSWORD '{PASSWORD}'")
        primary.execute(f"CREATE DATABASE {DATABASE} OWNER {GUEST}")
        with PostgresStandby(primary=primary) as standby:
            # Of the primary alone: once promoted, the other one waits for nobody.
            primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            primary.execute("SELECT pg_reload_conf()")
            _wait_until_it_confirms(primary, standby)
            yield Pair(primary, standby)


def _wait_until_it_confirms(primary: PostgresServer, standby: PostgresStandby) -> None:
    with psycopg.connect(primary.url(), autocommit=True) as connection:
        while connection.execute("SELECT sync_state FROM pg_stat_replication").fetchall() != [("sync",)]:
            assert standby.process is not None
            assert standby.process.poll() is None, (standby.folder / "log").read_text()
