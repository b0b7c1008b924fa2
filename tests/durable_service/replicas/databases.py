"""Databases that tests restart, kill and take away: each a server of its own with a folder of its own."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from tests.durable_service.crash.kept import Kept
from tests.durable_service.store import mongo_fixture, postgres_fixture
from tests.durable_service.store.mongo_fixture import MongoServer, require_mongo
from tests.durable_service.store.postgres_fixture import PostgresServer, require_postgres

KINDS = ("postgresql", "mongodb")


class Database(Protocol):
    """A server that serves, and is begun again after it was ended."""

    def kept(self) -> Kept:
        """A database of it that nobody has used."""

    def deafen(self) -> None:
        """Ends the connections by which services hear of each other, without a word to them."""

    def start(self) -> None:
        """Begins it, and returns when it serves."""

    def stop(self) -> None:
        """Asks it to end, and returns when it has."""

    def kill(self) -> None:
        """Ends it without a chance to write anything."""

    def hang(self) -> None:
        """Answers nothing from here on, and keeps its connections."""

    def resume(self) -> None:
        """Ends `hang`."""

    def refuse_writes(self) -> None:
        """Takes no writes from here on, as a database does that is none to write to any more."""

    def take_writes(self) -> None:
        """Ends `refuse_writes`."""


class PostgresDatabase(PostgresServer):
    """A PostgreSQL server whose commits are on the disk."""

    def kept(self) -> Kept:
        return Kept("postgresql", postgres_fixture.fresh_database(self))

    def deafen(self) -> None:
        listening = "query LIKE 'LISTEN%' AND pid <> pg_backend_pid()"
        ended = self.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {listening}")
        assert len(ended) >= 2

    def hang(self) -> None:
        self.pause()

    def refuse_writes(self) -> None:
        self._set_read_only("on")

    def take_writes(self) -> None:
        self._set_read_only("off")

    def _set_read_only(self, value: str) -> None:
        self.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        self.execute("SELECT pg_reload_conf()")


class MongoDatabase(MongoServer):
    """A MongoDB server whose time is the machine's."""

    _stepped_down = False

    def kept(self) -> Kept:
        return Kept("mongodb", mongo_fixture.fresh_database(self))

    def deafen(self) -> None:
        # Its cursors, so the change streams, end with it.
        self.kill()
        self.start()

    def refuse_writes(self) -> None:
        from pymongo import MongoClient

        with MongoClient[dict[str, Any]](self.url, directConnection=True) as client:
            client.admin.command({"replSetStepDown": 600, "force": True})
        self._stepped_down = True

    def take_writes(self) -> None:
        if self._stepped_down:
            # Begun anew it is the primary.
            self.kill()
            self.start()
            self._stepped_down = False


@contextlib.contextmanager
def database_of(kind: str) -> "Iterator[Database]":
    """Runs a server of this kind."""
    if kind == "postgresql":
        require_postgres()
        postgres = PostgresDatabase()
        with postgres:
            yield postgres
        return
    require_mongo()
    with tempfile.TemporaryDirectory(prefix="mongo-") as folder:
        mongo = MongoDatabase(Path(folder))
        mongo.start()
        try:
            yield mongo
        finally:
            mongo.kill()
