"""One process to fork from, for all tests of this folder."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .ground import Ground, service
from .nursery import Nursery, nursery


@pytest.fixture(scope="session")
async def cradle() -> AsyncIterator[Nursery]:
    async with nursery() as begun:
        yield begun


@pytest.fixture
async def ground(cradle: Nursery, tmp_path: Path) -> AsyncIterator[Ground]:
    async with service(cradle, tmp_path) as ground:
        yield ground
