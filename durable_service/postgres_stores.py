"""Stores on PostgreSQL, opened from the settings."""

from durable_service.blobs.base import BlobStore
from durable_service.core.errors import DomainError
from durable_service.store.base import StoreFault, StoreLimits, TaskStore
from durable_service.store_forms import store_refused
from service_common.errors import SettingsError

_MISSING = "psycopg is not installed: pip install 'sealwork[postgres]'"
_READ_ONLY = "name its primary, or all its servers as HOST1,HOST2, or promote it"


async def open_postgres_tasks(setting: str, limits: StoreLimits | None) -> TaskStore:
    """The task store on this database.

    Raises:
        SettingsError: it cannot be had; the text says why.
    """
    try:
        from durable_service.store.postgres import PostgresTaskStore  # noqa: PLC0415 - an extra
    except ImportError:
        raise store_refused(setting, _MISSING) from None
    try:
        return await PostgresTaskStore.open(setting, limits=limits)
    except DomainError as error:
        raise _refused(setting, error) from None


async def migrate_postgres(setting: str, *, finish: bool) -> str:
    """Brings the tables of tasks and of artifacts to this version, and says where they stand.

    Args:
        finish: removes what only older servers needed as well.

    Raises:
        SettingsError: as `open_postgres_tasks`.
    """
    try:
        from durable_service.blobs.postgres import PostgresBlobStore  # noqa: PLC0415 - an extra
        from durable_service.store.postgres import migrate_database  # noqa: PLC0415 - an extra
    except ImportError:
        raise store_refused(setting, _MISSING) from None
    try:
        standing = await migrate_database(setting, finish=finish)
        # Opening it makes its table.
        await (await PostgresBlobStore.open(setting)).close()
    except DomainError as error:
        raise _refused(setting, error) from None
    return f"schema version {standing.version}, for servers from version {standing.serves_from} on"


async def open_postgres_blobs(setting: str) -> BlobStore:
    """The blob store on this database; raises as `open_postgres_tasks`."""
    try:
        from durable_service.blobs.postgres import PostgresBlobStore  # noqa: PLC0415 - an extra
    except ImportError:
        raise store_refused(setting, _MISSING) from None
    try:
        return await PostgresBlobStore.open(setting)
    except DomainError as error:
        raise _refused(setting, error) from None


def _refused(setting: str, error: DomainError) -> SettingsError:
    read_only = getattr(error, "fault", "") == StoreFault.READ_ONLY
    return store_refused(setting, f"{error.message}; {_READ_ONLY}" if read_only else error.message)
