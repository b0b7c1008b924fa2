"""A standby takes over under a store: what was confirmed is there, and nothing that comes is missed."""

from collections.abc import Iterator

import psycopg
import pytest

from durable_service.blobs.postgres import PostgresBlobStore
from durable_service.postgres_stores import open_postgres_blobs, open_postgres_tasks
from durable_service.store.base import StoreFault, StoreUnavailable
from durable_service.store.contract.scene import TENANT, creation, key
from durable_service.store.postgres import PostgresTaskStore
from service_common.errors import SettingsError
from tests.durable_service.store.postgres_fixture import PostgresServer, require_postgres
from tests.durable_service.store.postgres_standby import Pair, pair_of_servers
from tests.harness.waiting import eventually

pytestmark = pytest.mark.process

BLOB = "9c5aaa6747c8eae493ddf5fcdac0187e3d50f96560e16de0960c4356ad212664"
_READ_ONLY = (
    "the database takes no writes at present: it is a standby, or set read-only; "
    "name its primary, or all its servers as HOST1,HOST2, or promote it"
)


@pytest.fixture
def pair() -> Iterator[Pair]:
    require_postgres()
    with pair_of_servers() as pair:
        yield pair


async def created(store: PostgresTaskStore, name: str) -> None:
    """Creates a task as soon as there is a server that takes it."""

    async def done() -> bool:
        try:
            await store.create(creation(name))
        except StoreUnavailable:
            return False
        return True

    await eventually(done, 30)


def burn(server: PostgresServer) -> None:
    """Gives out numbers of transactions that leave nothing behind."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        for _ in range(200):
            with connection.transaction(force_rollback=True):
                connection.execute("SELECT pg_current_xact_id()")


@pytest.mark.guarantee("postgresql", "Whoever follows the changes misses none when another server takes over")
async def test_no_change_is_missed_when_numbers_are_given_out_again(pair: Pair) -> None:
    store = await PostgresTaskStore.open(pair.url)
    try:
        await store.create(creation("a"))
        # Whatever the primary does now, the standby never hears of.
        pair.standby.stop()
        burn(pair.primary)
        page = await store.changes(TENANT, 0, 10)
        begin, fed = (await store.changes(TENANT, page.latest, 10)).latest, await store.feed_position()
        pair.primary.kill()
        pair.standby.start()
        pair.standby.promote()
        await created(store, "b")
        for position in (page.latest, begin):
            after = await store.changes(TENANT, position, 10)
            assert [record.key.task_id for _, record in after.records] == ["b"]
        # Only what others have done is told here.
        other = await PostgresTaskStore.open(pair.url)
        try:
            told = await other.feed_page(fed, 10)
        finally:
            await other.close()
        assert [record.key.task_id for record in told.records] == ["b"]
        assert await store.get(key("a")) is not None
    finally:
        await store.close()


async def test_a_primary_that_was_demoted_is_left(pair: Pair) -> None:
    tasks, blobs = await PostgresTaskStore.open(pair.url), await PostgresBlobStore.open(pair.url)
    try:
        await tasks.create(creation("a"))
        await blobs.put(BLOB, b"old")
        pair.demote()
        with pytest.raises(StoreUnavailable) as refused:
            await tasks.create(creation("b"))
        assert refused.value.fault is StoreFault.READ_ONLY
        pair.standby.promote()
        await created(tasks, "b")
        assert await tasks.get(key("a")) is not None
        # The old one would answer this: it is asked no more, though nobody has tried to write bytes.
        pair.standby.execute("DELETE FROM durable_blobs", "tasks")
        assert await blobs.get(BLOB) is None
        # Who listens has gone as well, and everything that waited in a pool.
        await pair.all_leave(pair.primary)
    finally:
        await blobs.close()
        await tasks.close()


async def test_a_standby_alone_is_refused(pair: Pair) -> None:
    await (await open_postgres_tasks(pair.url, None)).close()
    for options in ("", "?target_session_attrs=any"):
        url = pair.url_of(pair.standby) + options
        shown = f"--store postgresql://service:***@127.0.0.1:{pair.standby.port}/tasks{options}"
        for refused in (open_postgres_tasks(url, None), open_postgres_blobs(url)):
            with pytest.raises(SettingsError) as error:
                await refused
            assert str(error.value) == f"{shown}: {_READ_ONLY}"
