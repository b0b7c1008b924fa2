"""Bringing a store to the version of this service without serving."""

from durable_service.postgres_stores import migrate_postgres
from durable_service.store_forms import file_of, kind_of, store_refused, without_password
from durable_service.stores import open_stores


async def migrate_stores(setting: str, *, finish: bool) -> str:
    """Prepares a store for servers of this version; those of the version before go on beside them.

    Args:
        setting: as `serve` takes it.
        finish: removes what only older servers needed as well; they have to be gone.

    Returns:
        One line about where the store stands.

    Raises:
        SettingsError: it cannot be had or be migrated; the text says why.
    """
    shown = without_password(setting)
    match kind_of(setting):
        case "postgresql":
            standing = await migrate_postgres(setting, finish=finish)
            return f"{shown}: {standing}"
        case "memory":
            raise store_refused(setting, "nothing is kept there, so there is nothing to migrate")
    file = file_of(setting)
    if file is not None and not file.exists():
        raise store_refused(setting, "there is no such file; serve makes it")
    # One process at a time, or steps that need no second half: opening it is all.
    async with open_stores(setting):
        return f"{shown}: at the version of this service"
