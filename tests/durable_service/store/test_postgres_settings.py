"""A PostgreSQL database that cannot be served on, each with its reason and never with the password."""

import socket
import sys
from collections.abc import Iterator

import pytest

from durable_service.postgres_stores import open_postgres_tasks
from service_common.errors import SettingsError
from tests.durable_service.store.postgres_fixture import PostgresServer, require_postgres

pytestmark = pytest.mark.process

SECRET = "s3cret-w0rd"
_RULES = """
host all tester 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""


@pytest.fixture(scope="module")
def strict_server() -> Iterator[PostgresServer]:
    """A server that asks everybody but the superuser for a password."""
    require_postgres()
    server = PostgresServer(durable=False)
    (server.folder / "data" / "pg_hba.conf").write_text(_RULES)
    with server:
        server.execute(f"CREATE ROLE guest LOGIN PASSWORD '{SECRET}'")
        server.execute("CREATE ROLE many LOGIN PASSWORD 'many' CONNECTION LIMIT 0")
        server.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
        yield server


async def refusal(url: str) -> str:
    with pytest.raises(SettingsError) as refused:
        await open_postgres_tasks(url, None)
    text = str(refused.value)
    assert SECRET not in text
    assert "\n" not in text
    return text.partition("/postgres: ")[2] or text


async def test_a_wrong_password(strict_server: PostgresServer) -> None:
    url = strict_server.url(user="guest", password="wrong-" + SECRET)
    with pytest.raises(SettingsError) as refused:
        await open_postgres_tasks(url, None)
    assert str(refused.value) == (
        f"--store postgresql://guest:***@127.0.0.1:{strict_server.port}/postgres: "
        "the database refuses the user or the password"
    )


async def test_no_password_and_no_such_user(strict_server: PostgresServer) -> None:
    assert await refusal(strict_server.url(user="guest")) == "the database refuses the user or the password"
    unknown = strict_server.url(user="nobody", password=SECRET)
    assert await refusal(unknown) == "the database refuses the user or the password"


async def test_a_missing_database(strict_server: PostgresServer) -> None:
    text = await refusal(strict_server.url("missing"))
    assert text.endswith("/missing: there is no such database")


async def test_nobody_listens(strict_server: PostgresServer) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"postgresql://guest:{SECRET}@127.0.0.1:{taken.getsockname()[1]}/postgres"
        assert await refusal(url) == "the database cannot be reached"


async def test_an_unknown_host() -> None:
    require_postgres()
    url = f"postgresql://guest:{SECRET}@host.invalid/postgres"
    assert await refusal(url) == "the database cannot be reached"


async def test_no_right_to_make_tables(strict_server: PostgresServer) -> None:
    url = strict_server.url(user="guest", password=SECRET)
    strict_server.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    assert await refusal(url) == (
        "the user of the database may not create or use its tables: grant it CREATE on the schema, "
        "or run durable-service migrate as a user who may"
    )


async def test_a_search_path_without_a_schema(strict_server: PostgresServer) -> None:
    url = f"{strict_server.url()}?options=-csearch_path%3Dmissing"
    assert (await refusal(url)).endswith(
        "none of the schemas of the search path (missing) is there: create one"
    )


async def test_another_encoding(strict_server: PostgresServer) -> None:
    text = await refusal(strict_server.url("latin"))
    assert text.endswith("the encoding of the database is LATIN1: it has to be UTF8")


async def test_no_connection_left(strict_server: PostgresServer) -> None:
    text = await refusal(strict_server.url(user="many", password="many"))
    assert text == "the database has no connection left"


async def test_a_url_that_cannot_be_read() -> None:
    require_postgres()
    text = await refusal(f"postgresql://guest:{SECRET}@127.0.0.1:5432/postgres?nonsense=1")
    assert text.endswith("the URL of the database cannot be read: see the form of libpq's connection URIs")


async def test_a_database_that_takes_no_writes(strict_server: PostgresServer) -> None:
    strict_server.execute("CREATE DATABASE frozen")
    strict_server.execute("ALTER DATABASE frozen SET default_transaction_read_only = on")
    text = await refusal(strict_server.url("frozen"))
    assert text.endswith(
        "the database takes no writes at present: it is a standby, or set read-only; "
        "name its primary, or all its servers as HOST1,HOST2, or promote it"
    )


async def test_the_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("psycopg", "durable_service.postgres."))]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "durable_service.store.postgres", raising=False)
    assert await refusal("postgresql://127.0.0.1/postgres") == (
        "psycopg is not installed: pip install 'sealwork[postgres]'"
    )
