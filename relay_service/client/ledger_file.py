"""Lines of JSON that outlive the process: each is on the disk before whoever wrote it goes on."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

from service_common.atomic_file import create_file, replace_file

Entry: TypeAlias = Mapping[str, Any]


class LedgerError(Exception):
    """The ledger cannot be used. The message names the file and is for the owner."""


class LedgerFile:
    """A file that only grows, until it is replaced as a whole. One process at a time may have it."""

    def __init__(self, path: Path) -> None:
        """Use this file; nothing is touched before `open`."""
        self._path = path
        # Waiting for the disk must not hold up the event loop; one thread keeps the order.
        self._disk = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger")

    def open(self) -> Sequence[Entry]:
        """Return what is in the file; nothing when there is none yet.

        A last line that was cut short is dropped: whoever wrote it never went on. Any other line that cannot
        be read might be one that forbids something, so the file is refused.

        Raises:
            LedgerError: It cannot be read.
        """
        try:
            *lines, rest = self._path.read_bytes().split(b"\n")
            if rest:
                os.truncate(self._path, sum(len(line) + 1 for line in lines))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise LedgerError(f"{self._path}: {error.strerror or error}") from error
        return [self._entry(line) for line in lines]

    async def append(self, entries: Sequence[Entry]) -> None:
        """Return when the entries are on the disk.

        Raises:
            LedgerError: They could not be written.
        """
        await self._on_disk(_append, entries)

    async def replace(self, entries: Sequence[Entry]) -> None:
        """Put these entries in the place of everything that is there.

        Raises:
            LedgerError: They could not be written; the file is as it was.
        """
        await self._on_disk(_replace, entries)

    def close(self) -> None:
        """Write nothing more."""
        self._disk.shutdown()

    async def _on_disk(self, write: Any, entries: Sequence[Entry]) -> None:
        content = b"".join(json.dumps(entry).encode("ascii") + b"\n" for entry in entries)
        try:
            await asyncio.get_running_loop().run_in_executor(self._disk, write, self._path, content)
        except OSError as error:
            raise LedgerError(f"{self._path}: {error.strerror or error}") from error

    def _entry(self, line: bytes) -> Entry:
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            raise LedgerError(f"{self._path}: a line is damaged; put the file aside to start a new one")
        return entry


def _append(path: Path, content: bytes) -> None:
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_file(path, b"")
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        start = os.fstat(descriptor).st_size
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        except OSError:
            # Half a line, left by a full disk, would spoil the next one.
            os.ftruncate(descriptor, start)
            raise
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes) -> None:
    replace_file(path, content)
