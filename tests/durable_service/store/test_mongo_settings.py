"""A MongoDB store that cannot be opened says why, and never the password."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_service.mongo_stores import open_mongo_tasks
from service_common.errors import SettingsError
from tests.durable_service.store.mongo_fixture import (
    MISSING,
    MongoServer,
    forget_sockets,
    fresh_database,
    require_mongo,
)

if not MISSING:
    from pymongo import MongoClient


@pytest.fixture(scope="module")
def guarded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongoServer]:
    """A server that wants credentials: those of the user `sealwork` with the password `right-word`."""
    require_mongo()
    server = MongoServer(tmp_path_factory.mktemp("guarded"))
    server.start()
    with MongoClient[dict[str, object]](server.url) as client:
        roles = [{"role": "root", "db": "admin"}]
        client.admin.command("createUser", "sealwork", pwd="right-word", roles=roles)
    server.stop()
    server.options = ("--auth",)
    server.start()
    yield server
    server.stop()


async def refused(setting: str) -> str:
    with pytest.raises(SettingsError) as error:
        await open_mongo_tasks(setting, None)
    return str(error.value)


async def test_credentials(guarded_server: MongoServer) -> None:
    address = f"127.0.0.1:{guarded_server.port}/tasks?authSource=admin"
    store = await open_mongo_tasks(f"mongodb://sealwork:right-word@{address}", None)
    assert store.capabilities.durable
    await store.close()
    says = "the database refuses the user or the password, or the user may not use this database"
    assert await refused(f"mongodb://sealwork:wrong-word@{address}") == (
        f"--store mongodb://sealwork:***@{address}: {says}"
    )
    assert await refused(f"mongodb://{address}") == f"--store mongodb://{address}: {says}"


async def test_no_database_in_the_address(mongo_server: MongoServer) -> None:
    assert await refused(mongo_server.url) == (
        f"--store {mongo_server.url}: the address names no database: add it as mongodb://HOST:PORT/DATABASE"
    )


async def test_no_address() -> None:
    require_mongo()
    text = await refused("mongodb://user:secret@host:notaport/x")
    assert text == "--store mongodb://user:***@host:notaport/x: the address is not one of MongoDB"


async def test_nobody_answers(tmp_path: Path) -> None:
    require_mongo()
    port = MongoServer(tmp_path).port
    url = f"mongodb://user:secret@127.0.0.1:{port}/x?serverSelectionTimeoutMS=100"
    assert await refused(url) == (
        f"--store mongodb://user:***@127.0.0.1:{port}/x?serverSelectionTimeoutMS=100: "
        "the database cannot be reached, or has no primary at present"
    )
    forget_sockets()


@pytest.mark.guarantee("mongodb", "What a newer version has written is refused at the start")
async def test_what_a_newer_version_left(mongo_server: MongoServer) -> None:
    url = fresh_database(mongo_server)
    await (await open_mongo_tasks(url, None)).close()
    with MongoClient[dict[str, object]](url) as client:
        store = client.get_default_database()["durable_store"]
        store.update_one({"_id": "store"}, {"$set": {"format": 2}})
    assert await refused(url) == (
        f"--store {url}: the store has format 2, and this version knows 1: upgrade the service"
    )


async def test_the_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "durable_service.store.mongo", None)
    assert await refused("mongodb://user:secret@host/x") == (
        "--store mongodb://user:***@host/x: the extra 'mongo' is not installed: pip install 'sealwork[mongo]'"
    )
