"""From the settings to stores that are ready."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from durable_service.blobs.base import BlobStore
from durable_service.blobs.filesystem import FileBlobStore
from durable_service.blobs.memory import MemoryBlobStore
from durable_service.core.errors import DomainError
from durable_service.store.base import StoreLimits, TaskStore
from durable_service.store.clock import wall_ms
from durable_service.store.memory import MemoryTaskStore
from durable_service.store.sqlite import SqliteTaskStore
from durable_service.store_forms import file_of, kind_of
from service_common.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Stores:
    """Where tasks and their bytes are kept."""

    tasks: TaskStore
    blobs: BlobStore


@asynccontextmanager
async def open_stores(
    setting: str, blobs: Path | None = None, limits: StoreLimits | None = None
) -> AsyncIterator[Stores]:
    """Stores that are open, closed at the end.

    Args:
        setting: as the settings have it.
        blobs: folder for artifacts; where the tasks are when absent.
        limits: bounds of a task's content.

    Raises:
        SettingsError: they cannot be had; the text says why.
    """
    tasks = await _open_tasks(setting, limits)
    try:
        stores = Stores(tasks, await _open_blobs(setting, blobs))
    except BaseException:
        await tasks.close()
        raise
    try:
        yield stores
    finally:
        await stores.blobs.close()
        await stores.tasks.close()


async def _open_tasks(setting: str, limits: StoreLimits | None) -> TaskStore:
    match kind_of(setting):
        case "postgresql":
            from durable_service.postgres_stores import open_postgres_tasks  # noqa: PLC0415 - an extra

            return await open_postgres_tasks(setting, limits)
        case "mongodb":
            from durable_service.mongo_stores import open_mongo_tasks  # noqa: PLC0415 - an extra

            return await open_mongo_tasks(setting, limits)
    file = file_of(setting)
    if file is None:
        return MemoryTaskStore(limits=limits)
    return await asyncio.to_thread(_open_file, file, limits)


async def _open_blobs(setting: str, folder: Path | None) -> BlobStore:
    file = file_of(setting)
    if file is not None and folder is None:
        folder = file.with_name(file.name + ".blobs")
    if folder is not None:
        return await asyncio.to_thread(_open_folder, folder)
    match kind_of(setting):
        case "postgresql":
            from durable_service.postgres_stores import open_postgres_blobs  # noqa: PLC0415 - an extra

            return await open_postgres_blobs(setting)
        case "mongodb":
            from durable_service.mongo_stores import open_mongo_blobs  # noqa: PLC0415 - an extra

            return await open_mongo_blobs(setting)
    return MemoryBlobStore(wall_ms)


def _open_file(file: Path, limits: StoreLimits | None) -> TaskStore:
    try:
        return SqliteTaskStore(file, limits=limits)
    except DomainError as error:
        raise SettingsError(f"--store sqlite:///{file}: {error.message}") from None
    except OSError as error:
        raise SettingsError(f"--store sqlite:///{file}: {error.strerror}") from None


def _open_folder(blobs: Path) -> BlobStore:
    try:
        return FileBlobStore(blobs, wall_ms)
    except (DomainError, OSError):
        raise SettingsError(f"--blobs {blobs}: the folder cannot be made or written to") from None
