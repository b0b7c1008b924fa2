"""Stores on MongoDB, opened from the settings."""

from durable_service.blobs.base import BlobStore
from durable_service.core.errors import DomainError
from durable_service.store.base import StoreLimits, StoreUnavailable, TaskStore
from durable_service.store_forms import store_refused

_MISSING = "the extra 'mongo' is not installed: pip install 'sealwork[mongo]'"


async def open_mongo_tasks(setting: str, limits: StoreLimits | None) -> TaskStore:
    """The task store on this database.

    Raises:
        SettingsError: it cannot be had; the text says why.
    """
    try:
        from durable_service.store.mongo import MongoTaskStore  # noqa: PLC0415 - an extra
    except ImportError:
        raise store_refused(setting, _MISSING) from None
    try:
        return await MongoTaskStore.open(setting, limits)
    except StoreUnavailable as error:
        raise store_refused(setting, error.message) from None


async def open_mongo_blobs(setting: str) -> BlobStore:
    """The blob store on this database; raises as `open_mongo_tasks`."""
    try:
        from durable_service.blobs.mongo import MongoBlobStore  # noqa: PLC0415 - an extra
    except ImportError:
        raise store_refused(setting, _MISSING) from None
    try:
        return await MongoBlobStore.open(setting)
    except DomainError as error:
        raise store_refused(setting, error.message) from None
