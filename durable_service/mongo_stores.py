"""Stores on MongoDB, opened from the settings."""

from durable_service.blobs.base import BlobStore
from durable_service.store.base import StoreLimits, TaskStore
from durable_service.store_forms import without_password
from service_common.errors import SettingsError


async def open_mongo_tasks(setting: str, limits: StoreLimits | None) -> TaskStore:
    """The task store on this database.

    Raises:
        SettingsError: it cannot be had; the text says why.
    """
    del limits
    raise SettingsError(f"--store {without_password(setting)}: not supported by this version")


async def open_mongo_blobs(setting: str) -> BlobStore:
    """The blob store on this database; raises as `open_mongo_tasks`."""
    raise SettingsError(f"--store {without_password(setting)}: not supported by this version")
