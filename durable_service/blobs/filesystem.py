"""Bytes in files: durable, for one process, with nothing else to install.

A file holds a mark, the SHA-256 of its bytes and the bytes. It is written under another name and then linked
to its own, which fails when that is taken: no file is ever replaced, and none is ever seen half written.
"""

import asyncio
import hashlib
import os
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from durable_service.blobs.base import checked_data, checked_key, collision, corrupt
from durable_service.core.errors import DomainError, Reason
from durable_service.core.limits import BLOB_BYTES

_MARK: Final = b"SWB1"
_HEADER_BYTES: Final = len(_MARK) + hashlib.sha256().digest_size
_UNFINISHED: Final = ".unfinished-"
_NANOSECONDS: Final = 1_000_000


class FileBlobStore:
    """The embedded store. What it has answered is on the disk."""

    def __init__(self, folder: Path, wall: Callable[[], int], limit_bytes: int = BLOB_BYTES) -> None:
        """Use a folder, and make it when it is not there.

        Args:
            wall: epoch milliseconds; the age of bytes is by this clock.

        Raises:
            DomainError: STORE_UNAVAILABLE when the folder cannot be made.
        """
        self._folder = folder
        self._wall = wall
        self._limit_bytes = limit_bytes
        # Between looking at the age of bytes and removing them, nobody may put them again.
        self._lock = threading.Lock()
        with _translated():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _synchronise(folder.parent)

    @property
    def durable(self) -> bool:
        return True

    async def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        checked_data(data, self._limit_bytes)
        await asyncio.to_thread(self._put, path, data)

    async def get(self, key: str) -> bytes | None:
        return await asyncio.to_thread(_read, self._path(key))

    async def delete(self, key: str) -> None:
        await asyncio.to_thread(self._delete, self._path(key))

    async def keys_before(self, put_before_ms: int) -> AsyncIterator[str]:
        for shard in await asyncio.to_thread(self._shards):
            for key in await asyncio.to_thread(_old_keys, shard, put_before_ms):
                yield key

    async def delete_if_before(self, key: str, put_before_ms: int) -> bool:
        return await asyncio.to_thread(self._delete_if_before, self._path(key), put_before_ms)

    async def close(self) -> None:
        """Nothing is held open."""

    def _path(self, key: str) -> Path:
        return self._folder / checked_key(key)[:2] / key

    def _put(self, path: Path, data: bytes) -> None:
        with _translated():
            if not path.parent.exists():
                path.parent.mkdir(exist_ok=True, mode=0o700)
                _synchronise(self._folder)
            unfinished = path.with_name(_UNFINISHED + secrets.token_hex(16))
            try:
                _write(unfinished, data, self._wall())
                self._give_name(unfinished, path, data)
            finally:
                unfinished.unlink(missing_ok=True)

    def _give_name(self, unfinished: Path, path: Path, data: bytes) -> None:
        with self._lock:
            try:
                os.link(unfinished, path)
            except FileExistsError:
                if _read(path) != data:
                    raise collision() from None
                _date(path, self._wall())
        # Also when the file was there: whoever put it may not have come this far.
        _synchronise(path.parent)

    def _delete(self, path: Path) -> None:
        with _translated(), self._lock:
            path.unlink(missing_ok=True)

    def _delete_if_before(self, path: Path, put_before_ms: int) -> bool:
        with _translated(), self._lock:
            if not path.exists() or _dated_ms(path) >= put_before_ms:
                return False
            path.unlink()
            return True

    def _shards(self) -> list[Path]:
        with _translated():
            return sorted(entry for entry in self._folder.iterdir() if entry.is_dir())


def _write(path: Path, data: bytes, at_ms: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(_MARK + hashlib.sha256(data).digest())
        file.write(data)
        file.flush()
        os.utime(file.fileno(), ns=(at_ms * _NANOSECONDS, at_ms * _NANOSECONDS))
        os.fsync(file.fileno())


def _read(path: Path) -> bytes | None:
    with _translated():
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
    data = content[_HEADER_BYTES:]
    if content[:_HEADER_BYTES] != _MARK + hashlib.sha256(data).digest():
        raise corrupt()
    return data


def _date(path: Path, at_ms: int) -> None:
    os.utime(path, ns=(at_ms * _NANOSECONDS, at_ms * _NANOSECONDS))


def _dated_ms(path: Path) -> int:
    return path.stat().st_mtime_ns // _NANOSECONDS


def _old_keys(shard: Path, put_before_ms: int) -> list[str]:
    keys = []
    with _translated():
        for path in shard.iterdir():
            # A file may go while the folder is read.
            with suppress(FileNotFoundError):
                if _dated_ms(path) >= put_before_ms:
                    continue
                if path.name.startswith(_UNFINISHED):
                    # Left behind by a process that was killed.
                    path.unlink()
                else:
                    keys.append(path.name)
    return keys


def _synchronise(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DomainError(Reason.STORE_UNAVAILABLE, "the blob store cannot do its work") from error
