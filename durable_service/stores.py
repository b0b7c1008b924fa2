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
from durable_service.store.base import TaskStore
from durable_service.store.clock import wall_ms
from durable_service.store.memory import MemoryTaskStore
from durable_service.store.sqlite import SqliteTaskStore
from durable_service.store_forms import file_of
from service_common.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Stores:
    """Where tasks and their bytes are kept."""

    tasks: TaskStore
    blobs: BlobStore


@asynccontextmanager
async def open_stores(setting: str, blobs: Path | None = None) -> AsyncIterator[Stores]:
    """Stores that are open, closed at the end.

    Args:
        setting: as the settings have it.
        blobs: folder for artifacts; beside the file of the store when absent.

    Raises:
        SettingsError: they cannot be had; the text says why.
    """
    file = file_of(setting)
    if file is None:
        stores = Stores(MemoryTaskStore(), MemoryBlobStore(wall_ms))
    else:
        stores = await asyncio.to_thread(_open_files, file, blobs or file.with_name(file.name + ".blobs"))
    try:
        yield stores
    finally:
        await stores.blobs.close()
        await stores.tasks.close()


def _open_files(file: Path, blobs: Path) -> Stores:
    try:
        tasks = SqliteTaskStore(file)
    except DomainError as error:
        raise SettingsError(f"--store sqlite:///{file}: {error.message}") from None
    except OSError as error:
        raise SettingsError(f"--store sqlite:///{file}: {error.strerror}") from None
    try:
        return Stores(tasks, FileBlobStore(blobs, wall_ms))
    except (DomainError, OSError):
        raise SettingsError(f"--blobs {blobs}: the folder cannot be made or written to") from None
