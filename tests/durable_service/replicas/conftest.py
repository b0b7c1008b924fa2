"""One process to fork services from, and a database of its own for each test."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.durable_service.crash.nursery import Nursery, nursery
from tests.durable_service.replicas.databases import Database, database_of


@pytest.fixture(scope="session")
async def cradle() -> AsyncIterator[Nursery]:
    async with nursery() as begun:
        yield begun


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest) -> Iterator[Database]:
    """One server for the tests of a module that leave it alive."""
    with database_of(request.param) as database:
        yield database


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with database_of(request.param) as database:
        yield database
