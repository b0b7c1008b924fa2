"""Servers of two versions beside each other on one PostgreSQL database, and the upgrade in two steps."""

import asyncio

import psycopg
import pytest
from click.testing import CliRunner

from durable_service.cli import durable_service
from durable_service.core.outcomes import cancel
from durable_service.postgres.connections import connect
from durable_service.store.base import StoreFault, StoreUnavailable
from durable_service.store.contract.scene import Scene
from durable_service.store.postgres import PostgresTaskStore, migrate_database
from durable_service.store.postgres_migration import SchemaStanding, migrate
from durable_service.store.postgres_schema import STEPS, SchemaStep
from tests.durable_service.store.postgres_fixture import PostgresServer, fresh_database, postgres_server

__all__ = ["postgres_server"]

pytestmark = pytest.mark.process

# The release after this one: it adds a column, and later drops a table that only this release reads.
NEXT = (
    *STEPS,
    SchemaStep(
        2,
        pre="ALTER TABLE durable_tasks ADD COLUMN priority bigint NOT NULL DEFAULT 0",
        post="ALTER TABLE durable_nonces ADD COLUMN kind bigint",
    ),
)
# And one that servers of version 1 cannot work beside.
HARSH = (*STEPS, SchemaStep(2, pre="ALTER TABLE durable_tasks ADD COLUMN priority bigint", serves_from=2))


async def test_a_new_database_gets_everything(postgres_server: PostgresServer) -> None:
    url = fresh_database(postgres_server)
    assert await migrate_database(url) == SchemaStanding(1, 1, 1)
    assert await migrate_database(url) == SchemaStanding(1, 1, 1)
    # Of a new database there is nothing old to remove.
    assert await migrate_database(fresh_database(postgres_server), NEXT) == SchemaStanding(2, 2, 2)


async def test_an_older_server_goes_on_beside_a_newer(postgres_server: PostgresServer) -> None:
    url = fresh_database(postgres_server)
    older = await PostgresTaskStore.open(url)
    newer = await PostgresTaskStore.open(url, steps=NEXT)
    try:
        await Scene(older).create("a")
        await Scene(newer).create("b")
        await Scene(newer).run("a", cancel, "")
        assert (await Scene(older).record("a")).terminal
        assert await older.use_nonce("caller", "n", 1_000)
        assert not await newer.use_nonce("caller", "n", 1_000)
        # An older one may also start again meanwhile.
        again = await PostgresTaskStore.open(url)
        assert (await Scene(again).record("b")).revision == 0
        await again.close()
        async with await connect(url) as connection:
            assert await migrate(connection, NEXT) == SchemaStanding(2, 1, 1)
    finally:
        await older.close()
        await newer.close()


@pytest.mark.guarantee("postgresql", "What a newer version has written is refused at the start")
async def test_after_the_second_step_an_older_server_is_refused(postgres_server: PostgresServer) -> None:
    url = fresh_database(postgres_server)
    await migrate_database(url)
    await migrate_database(url, NEXT)
    assert await migrate_database(url, NEXT, finish=True) == SchemaStanding(2, 2, 2)
    assert await migrate_database(url, NEXT, finish=True) == SchemaStanding(2, 2, 2)
    with pytest.raises(StoreUnavailable) as refusal:
        await PostgresTaskStore.open(url)
    assert refusal.value.fault is StoreFault.NEWER_FORMAT
    assert refusal.value.message == (
        "the schema of the database is at version 2 and serves versions from 2, and this server has 1: "
        "upgrade the service"
    )
    await (await PostgresTaskStore.open(url, steps=NEXT)).close()


async def test_a_step_may_end_the_service_of_older_servers(postgres_server: PostgresServer) -> None:
    url = fresh_database(postgres_server)
    await migrate_database(url)
    await migrate_database(url, HARSH)
    with pytest.raises(StoreUnavailable, match="upgrade the service"):
        await PostgresTaskStore.open(url)


async def test_a_schema_that_is_too_old_is_refused(postgres_server: PostgresServer) -> None:
    url = fresh_database(postgres_server)
    await migrate_database(url)
    late = (SchemaStep(3, pre="SELECT 1"),)
    with pytest.raises(StoreUnavailable) as refusal:
        await PostgresTaskStore.open(url, steps=late)
    assert refusal.value.fault is StoreFault.OLDER_FORMAT
    assert refusal.value.message == (
        "the schema of the database is at version 1, and this server can bring it on from 2: "
        "run durable-service migrate of a release in between first"
    )


async def test_servers_that_start_together_migrate_once(postgres_server: PostgresServer) -> None:
    url = fresh_database(postgres_server)
    standings = await asyncio.gather(*(migrate_database(url, NEXT) for _ in range(4)))
    assert standings == [SchemaStanding(2, 2, 2)] * 4


async def test_a_step_that_fails_leaves_nothing(postgres_server: PostgresServer) -> None:
    url = fresh_database(postgres_server)
    broken = (*STEPS, SchemaStep(2, pre="CREATE TABLE durable_half (a bigint); SELECT 1 / 0"))
    with pytest.raises(StoreUnavailable, match="refused with code 22012"):
        await migrate_database(url, broken)
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT to_regclass('durable_tasks'), to_regclass('durable_half')")
        assert found.fetchall() == [(None, None)]
    assert await migrate_database(url) == SchemaStanding(1, 1, 1)


def test_the_command(postgres_server: PostgresServer) -> None:
    url = fresh_database(postgres_server)
    done = CliRunner().invoke(durable_service, ["migrate", "--store", url])
    assert (done.exit_code, done.output) == (0, f"{url}: schema version 1, for servers from version 1 on\n")
    again = CliRunner().invoke(durable_service, ["migrate", "--finish"], env={"DURABLE_STORE": url})
    assert again.exit_code == 0
    memory = CliRunner().invoke(durable_service, ["migrate", "--store", "memory:"])
    assert memory.exit_code == 2
    assert memory.stderr == (
        "Error: --store memory:: nothing is kept there, so there is nothing to migrate\n"
    )
    assert CliRunner().invoke(durable_service, ["migrate", "--store", "redis://x"]).exit_code == 2
