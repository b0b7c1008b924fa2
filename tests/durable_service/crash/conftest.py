"""One process to fork from, for all tests of this folder, and the places where tasks are kept."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from durable_service.store.clock import wall_ms
from tests.durable_service.store import mongo_fixture, postgres_fixture
from tests.durable_service.store.mongo_fixture import MongoServer, require_mongo
from tests.durable_service.store.postgres_fixture import PostgresServer, require_postgres

from .ground import Ground, service
from .kept import Kept, file_in
from .nursery import Nursery, nursery


@pytest.fixture(scope="session")
async def cradle() -> AsyncIterator[Nursery]:
    async with nursery() as begun:
        yield begun


@pytest.fixture
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    """A file; another place in a test that has this fixture as a parameter."""
    match getattr(request, "param", "sqlite"):
        case "postgresql":
            return in_postgres(request.getfixturevalue("durable_postgres"))
        case "mongodb":
            return in_mongo(request.getfixturevalue("mongo_with_a_clock"))
        case _:
            return file_in(tmp_path)


@pytest.fixture(scope="session")
def mongo_with_a_clock() -> Iterator[MongoServer]:
    """A server of these tests alone, since its time is theirs."""
    require_mongo()
    with tempfile.TemporaryDirectory(prefix="mongo-") as folder:
        server = MongoServer(Path(folder))
        server.start()
        yield server
        server.stop()


@pytest.fixture(scope="session")
def durable_postgres() -> Iterator[PostgresServer]:
    """A server whose commits are on the disk."""
    require_postgres()
    with PostgresServer() as server:
        yield server


def in_postgres(server: PostgresServer) -> Kept:
    """A database of its own, whose time gets ahead of the server's by what a test lets pass."""
    url = postgres_fixture.fresh_database(server)
    passed_ms = 0

    def pass_ms(milliseconds: int) -> None:
        nonlocal passed_ms
        passed_ms += milliseconds
        server.execute(
            "CREATE OR REPLACE FUNCTION durable_wall_ms() RETURNS bigint LANGUAGE sql VOLATILE RETURN "
            f"floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + {passed_ms}",
            url.rpartition("/")[2],
        )

    return Kept("postgresql", url, pass_ms, lambda: killed(server))


def in_mongo(server: MongoServer) -> Kept:
    """A database of its own, at a server whose time stands once a test has let some of it pass."""
    server.hold_clock(0)
    held_ms = 0

    def pass_ms(milliseconds: int) -> None:
        nonlocal held_ms
        held_ms = (held_ms or wall_ms()) + milliseconds
        server.hold_clock(held_ms)

    return Kept("mongodb", mongo_fixture.fresh_database(server), pass_ms, lambda: killed(server))


def killed(server: PostgresServer | MongoServer) -> None:
    server.kill()
    server.start()


@pytest.fixture
async def ground(cradle: Nursery, tmp_path: Path, kept: Kept) -> AsyncIterator[Ground]:
    async with service(cradle, tmp_path, kept) as ground:
        yield ground
