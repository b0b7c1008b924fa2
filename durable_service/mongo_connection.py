"""Connections to MongoDB, and what its failures mean; tasks and bytes use them alike."""

from enum import StrEnum
from typing import Any, Final

from pymongo import AsyncMongoClient, ReadPreference, WriteConcern
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import (
    AutoReconnect,
    ConfigurationError,
    ConnectionFailure,
    ExecutionTimeout,
    InvalidOperation,
    OperationFailure,
    PyMongoError,
    WriteConcernError,
)
from pymongo.read_concern import ReadConcern

Document = dict[str, Any]
Client = AsyncMongoClient[Document]
Database = AsyncDatabase[Document]

# A write is confirmed when most members have it in their journals: no failover takes it back.
WRITE_CONCERN: Final = WriteConcern(w="majority", j=True, wtimeout=8_000)
READ_CONCERN: Final = ReadConcern("majority")
# What the address does not say itself. A caller is told within seconds that the database is away.
_TIMEOUTS_MS: Final = {
    "serverSelectionTimeoutMS": 4_000,
    "connectTimeoutMS": 3_000,
    "socketTimeoutMS": 10_000,
    "waitQueueTimeoutMS": 4_000,
}
_CREDENTIALS: Final = frozenset({11, 13, 18, 8000})
_DISK_FULL: Final = frozenset({14031})
# A member that was the primary, one that shuts down, and writes that too few members confirmed.
_AWAY: Final = frozenset({6, 7, 64, 89, 91, 100, 133, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436})


class MongoFault(StrEnum):
    """Why the database cannot do its work; the words are those of the faults of a task store."""

    UNREACHABLE = "unreachable"
    CREDENTIALS = "credentials"
    NO_DATABASE = "no_database"
    DISK_FULL = "disk_full"
    CLOSED = "closed"
    FAILED = "failed"


class MongoFailure(Exception):  # noqa: N818 - it names a state of the database
    """A failure at a connection; its text names neither addresses nor credentials."""

    def __init__(self, fault: MongoFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault
        self.message = message


def connect(url: str) -> Client:
    """A client that connects when it is first used.

    Raises:
        MongoFailure: NO_DATABASE when the address names no database; FAILED when it is none.
    """
    lowered = url.lower()
    timeouts: dict[str, Any] = {
        name: value for name, value in _TIMEOUTS_MS.items() if name.lower() not in lowered
    }
    try:
        client = Client(url, appname="sealwork", retryWrites=True, retryReads=True, **timeouts)
    except (PyMongoError, ValueError, TypeError):
        raise MongoFailure(MongoFault.FAILED, "the address is not one of MongoDB") from None
    try:
        client.get_default_database()
    except ConfigurationError:
        raise MongoFailure(
            MongoFault.NO_DATABASE, "the address names no database: add it as mongodb://HOST:PORT/DATABASE"
        ) from None
    return client


def database_of(client: Client) -> Database:
    """The database that the address names: asked at the primary, with what no failover takes back."""
    return client.get_default_database(
        read_preference=ReadPreference.PRIMARY, write_concern=WRITE_CONCERN, read_concern=READ_CONCERN
    )


def failure_of(error: PyMongoError) -> MongoFailure:
    """What an error of the driver means to somebody who waits for an answer."""
    if isinstance(error, WriteConcernError | ExecutionTimeout):
        return _unreachable()
    if isinstance(error, OperationFailure):
        return _refused(error)
    if isinstance(error, ConnectionFailure):
        return _unreachable()
    if isinstance(error, InvalidOperation):
        return MongoFailure(MongoFault.CLOSED, "the connection to the database is closed")
    return MongoFailure(MongoFault.FAILED, "the database refused what was asked")


def is_uncertain(error: PyMongoError) -> bool:
    """Whether a write that ended so may have happened, or may happen still."""
    return isinstance(error, AutoReconnect | WriteConcernError) or (
        isinstance(error, OperationFailure) and error.code in _AWAY
    )


def _refused(error: OperationFailure) -> MongoFailure:
    if error.code in _CREDENTIALS:
        return MongoFailure(
            MongoFault.CREDENTIALS,
            "the database refuses the user or the password, or the user may not use this database",
        )
    if error.code in _DISK_FULL:
        return MongoFailure(MongoFault.DISK_FULL, "the disk of the database is full")
    if error.code in _AWAY:
        return _unreachable()
    return MongoFailure(MongoFault.FAILED, "the database refused what was asked")


def _unreachable() -> MongoFailure:
    return MongoFailure(
        MongoFault.UNREACHABLE, "the database cannot be reached, or has no primary at present"
    )
