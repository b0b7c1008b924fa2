"""Results on disk until the relay has them: a crash between the work and its delivery loses nothing.

A file holds one serialized CompleteJobRequest. What is in it is sealed to the site; still only the owner of
the process may read it.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from sealwork.relay.v1 import daemon_plane_pb2

logger = logging.getLogger("sealwork.client")

_SUFFIX: Final = ".result"
_UNFINISHED: Final = ".unfinished"
_UNREADABLE: Final = ".unreadable"
_LOCK: Final = "lock"
_MODE: Final = 0o600


class SpoolError(Exception):
    """The spool cannot be used. The message names the folder and is for the owner."""


class Spool:
    """A folder of results that belongs to one process at a time."""

    def __init__(self, folder: Path) -> None:
        """Use this folder; nothing is touched before `open`."""
        self._folder = folder
        self._lock: int | None = None
        # Waiting for the disk must not hold up the event loop; one thread keeps the order.
        self._disk = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spool")

    def open(self) -> Sequence[daemon_plane_pb2.CompleteJobRequest]:
        """Take the folder, and return what an earlier process has left in it.

        Raises:
            SpoolError: It cannot be used, or another process uses it.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._take()
            return [request for path in sorted(self._folder.iterdir()) if (request := _read(path))]
        except OSError as error:
            raise SpoolError(f"{self._folder}: {error.strerror or error}") from error

    async def put(self, request: daemon_plane_pb2.CompleteJobRequest) -> None:
        """Return when the result is on the disk.

        Raises:
            SpoolError: It could not be written.
        """
        path, body = self._path(request.lease.lease_id), request.SerializeToString()
        try:
            await asyncio.get_running_loop().run_in_executor(self._disk, _write, path, body)
        except OSError as error:
            raise SpoolError(f"{path}: {error.strerror or error}") from error

    def remove(self, lease_id: str) -> None:
        """Forget a result that was delivered or is not wanted.

        A file that comes back after a crash is delivered again, which changes nothing.
        """
        try:
            self._path(lease_id).unlink(missing_ok=True)
        except OSError as error:
            logger.warning("a delivered result could not be removed from the spool: %s", error.strerror)

    def close(self) -> None:
        """Give the folder free."""
        self._disk.shutdown()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take(self) -> None:
        self._lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
            raise SpoolError(f"{self._folder}: another daemon uses this spool; give each its own") from None

    def _path(self, lease_id: str) -> Path:
        # A lease id may hold any character; its digest is a file name.
        return self._folder / (hashlib.sha256(lease_id.encode("utf-8")).hexdigest() + _SUFFIX)


def _write(path: Path, body: bytes) -> None:
    unfinished = path.with_suffix(_UNFINISHED)
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(body)
        file.flush()
        os.fsync(descriptor)
    unfinished.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # The name is on the disk only when the folder is.
        os.fsync(folder)
    finally:
        os.close(folder)


def _read(path: Path) -> daemon_plane_pb2.CompleteJobRequest | None:
    if path.suffix == _UNFINISHED:
        path.unlink()
    if path.suffix != _SUFFIX:
        return None
    with contextlib.suppress(DecodeError):
        request = daemon_plane_pb2.CompleteJobRequest.FromString(path.read_bytes())
        if request.lease.lease_id:
            return request
    logger.error("%s: not a result; set aside", path)
    path.rename(path.with_suffix(_UNREADABLE))
    return None
