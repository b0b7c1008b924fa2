"""The file of a SQLite store: who may open it, how, and what its faults mean."""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from durable_service.store.base import StoreFault, StoreUnavailable

_FAULTS: Final = {
    sqlite3.SQLITE_FULL: (StoreFault.DISK_FULL, "the disk of the store is full"),
    sqlite3.SQLITE_READONLY: (StoreFault.READ_ONLY, "the store cannot be written to"),
    sqlite3.SQLITE_CORRUPT: (StoreFault.CORRUPT, "the file of the store is damaged"),
    sqlite3.SQLITE_NOTADB: (StoreFault.CORRUPT, "the file of the store is not a store"),
    sqlite3.SQLITE_BUSY: (StoreFault.IN_USE, "the file of the store is in use by another program"),
    sqlite3.SQLITE_LOCKED: (StoreFault.IN_USE, "the file of the store is in use by another program"),
}
_PRIMARY_CODE: Final = 0xFF
# "SWDT", in the header of the file: it tells the store from other databases.
APPLICATION_ID: Final = 0x53574454


def fault(error: sqlite3.Error) -> StoreUnavailable:
    """What an error of the database means, without its text: that may quote what a caller sent."""
    code = getattr(error, "sqlite_errorcode", None)
    kind, message = _FAULTS.get(
        -1 if code is None else code & _PRIMARY_CODE, (StoreFault.FAILED, "the store cannot do its work")
    )
    return StoreUnavailable(kind, message)


@contextmanager
def translated() -> Iterator[None]:
    """Turns errors of the database into those of the port."""
    try:
        yield
    except sqlite3.Error as error:
        raise fault(error) from error


class FileLock:
    """The right to be the one process on a file. It is held by the system, so a killed process loses it.

    It lies beside the database: closing any descriptor of the database itself would drop SQLite's own locks.
    """

    def __init__(self, database: Path) -> None:
        """Take the lock.

        Raises:
            StoreUnavailable: another process has it, or the folder cannot be written to.
        """
        self.path = database.with_name(database.name + ".lock")
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnavailable(
                StoreFault.READ_ONLY, f"cannot write beside {database}: {error.strerror}"
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise StoreUnavailable(
                StoreFault.IN_USE, f"{database} is in use by another process: stop it, or choose another file"
            ) from error

    def release(self) -> None:
        os.close(self._descriptor)


def make_private(database: Path) -> None:
    """Makes the file, readable by its owner alone, when it is not there; SQLite gives its logs the same mode.

    Raises:
        StoreUnavailable: it cannot be opened for writing.
    """
    try:
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreUnavailable(StoreFault.READ_ONLY, f"cannot write {database}: {error.strerror}") from error


def connect_writer(database: Path) -> sqlite3.Connection:
    """The one connection that writes; what it has committed is on the disk."""
    connection = _connect(database)
    # FULL: the log is synchronised with every commit, so that an answer outlives a loss of power.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 4000")
    return connection


def connect_reader(database: Path) -> sqlite3.Connection:
    connection = _connect(database)
    connection.execute("PRAGMA query_only = ON")
    return connection


def synchronise_folder(database: Path) -> None:
    """Makes the name of a new file as durable as its content."""
    descriptor = os.open(database.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _connect(database: Path) -> sqlite3.Connection:
    # Each connection belongs to one thread at a time; which one is the business of its owner.
    connection = sqlite3.connect(database, timeout=5.0, isolation_level=None, check_same_thread=False)
    try:
        # First: the file of another program is to stay as it is.
        _refuse_foreign(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA cache_size = -65536")
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_foreign(connection: sqlite3.Connection) -> None:
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if mark != APPLICATION_ID and tables:
        raise StoreUnavailable(
            StoreFault.CORRUPT, "the file is the database of another program: choose another file"
        )
