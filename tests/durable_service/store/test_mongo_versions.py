"""Servers that are too old for what the store on MongoDB asks of them."""

from typing import Any

import pytest

from durable_service.mongo_stores import open_mongo_tasks
from service_common.errors import SettingsError
from tests.durable_service.store.mongo_fixture import MISSING, MongoServer, fresh_database

if not MISSING:
    from pymongo.asynchronous.database import AsyncDatabase


def claim_to_be(version: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the server say that it is of this version."""
    command = AsyncDatabase.command

    async def answer(database: Any, name: Any, *details: Any, **options: Any) -> Any:
        if name == "buildInfo":
            return {"version": ".".join(map(str, version)), "versionArray": [*version, 0]}
        return await command(database, name, *details, **options)

    monkeypatch.setattr(AsyncDatabase, "command", answer)


@pytest.mark.parametrize("version", [[3, 6, 23], [4, 4, 29]])
async def test_an_old_server_is_refused(
    mongo_server: MongoServer, monkeypatch: pytest.MonkeyPatch, version: list[int]
) -> None:
    claim_to_be(version, monkeypatch)
    url = fresh_database(mongo_server)
    with pytest.raises(SettingsError) as refused:
        await open_mongo_tasks(url, None)
    said = ".".join(map(str, version))
    assert str(refused.value) == f"--store {url}: the server has version {said}: it must be 5.0 or newer"


@pytest.mark.parametrize("version", [[5, 0, 0], [10, 0, 1]])
async def test_a_newer_server_is_taken(
    mongo_server: MongoServer, monkeypatch: pytest.MonkeyPatch, version: list[int]
) -> None:
    claim_to_be(version, monkeypatch)
    store = await open_mongo_tasks(fresh_database(mongo_server), None)
    await store.close()
