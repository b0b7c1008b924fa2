"""What goes wrong with a database, in words that may be shown.

The texts of the server and of its client library are never shown: they may quote values.
"""

from typing import Final

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from durable_service.core.errors import DomainError, Reason

_UNREACHABLE: Final = ("unreachable", "the database cannot be reached")
# By the code of the server's answer, or by the class of the code: its first two characters.
_BY_CODE: Final = {
    "08": _UNREACHABLE,
    "22021": ("failed", "the database does not take this text: its encoding has to be UTF8"),
    "25006": ("read_only", "the database takes no writes at present: it is a standby, or set read-only"),
    "28": ("credentials", "the database refuses the user or the password"),
    "3D000": ("no_database", "there is no such database"),
    "42501": ("credentials", "the user of the database lacks a right"),
    "42P01": ("failed", "a table is missing in the database"),
    "53100": ("disk_full", "the disk of the database is full"),
    "53300": ("unreachable", "the database has no connection left"),
    "55P03": ("failed", "a lock in the database was not had in time"),
    "57014": ("failed", "the database took too long"),
    "57P01": _UNREACHABLE,
    "57P02": _UNREACHABLE,
    "57P03": ("unreachable", "the database is starting or stopping"),
    "57P05": _UNREACHABLE,
    "XX001": ("corrupt", "the database found damaged data"),
    "XX002": ("corrupt", "the database found a damaged index"),
}
# Another transaction was faster, or has to be waited for again: nothing has happened.
_CONFLICTS: Final = frozenset({"40001", "40P01", "55P03"})
# What a server says before a connection is made has no code in the client library, only this text.
_AT_CONNECTING: Final = (
    ("password authentication failed", "28P01"),
    ("no password supplied", "28P01"),
    ("authentication failed", "28000"),
    ("no pg_hba.conf entry", "28000"),
    ("is not permitted to log in", "28000"),
    ("too many clients", "53300"),
    ("remaining connection slots", "53300"),
    ("too many connections", "53300"),
    ("is starting up", "57P03"),
    ("is shutting down", "57P03"),
    ("in recovery mode", "57P03"),
    ("session is read-only", "25006"),
    ("session is not read-only", "25006"),
)


class DatabaseUnavailable(DomainError):  # noqa: N818 - it names a state of the database
    """The database cannot be asked, or cannot do what it is asked.

    Whether a write has happened is unknown when the connection broke.

    Attributes:
        fault: one of the values of the task store's faults, such as `unreachable`.
        code: of the server's answer, five characters; empty when there was none.
    """

    def __init__(self, fault: str, message: str, code: str = "") -> None:
        super().__init__(Reason.STORE_UNAVAILABLE, message)
        self.fault = fault
        self.code = code


def unavailable(error: psycopg.Error | OSError) -> DatabaseUnavailable:
    """What an error of the client library means."""
    if isinstance(error, PoolClosed):
        return DatabaseUnavailable("closed", "the store is closed")
    if isinstance(error, PoolTimeout | TooManyRequests):
        return DatabaseUnavailable("unreachable", "no connection to the database is to be had")
    code = code_of(error)
    if not code and isinstance(error, psycopg.ProgrammingError):
        text = "the URL of the database cannot be read: see the form of libpq's connection URIs"
        return DatabaseUnavailable("failed", text)
    if code in _BY_CODE:
        return DatabaseUnavailable(*_BY_CODE[code], code)
    if code[:2] in _BY_CODE:
        return DatabaseUnavailable(*_BY_CODE[code[:2]], code)
    if not code and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | OSError):
        return DatabaseUnavailable(*_UNREACHABLE)
    return DatabaseUnavailable("failed", f"the database refused with code {code or 'unknown'}", code)


def code_of(error: psycopg.Error | OSError) -> str:
    """The five characters that say what happened; empty when no server said anything."""
    code = getattr(error, "sqlstate", None)
    if code:
        return str(code)
    text = str(error)
    if 'database "' in text and "does not exist" in text:
        return "3D000"
    if 'role "' in text and "does not exist" in text:
        return "28000"
    return next((code for words, code in _AT_CONNECTING if words in text), "")


def is_conflict(error: psycopg.Error) -> bool:
    """Nothing was written because of another transaction, and trying again may help."""
    return error.sqlstate in _CONFLICTS


def breaks_connections(error: psycopg.Error) -> bool:
    """No other connection that is open by now is better than this one."""
    code = error.sqlstate or ""
    return code == "25006" or code[:3] == "57P" or code[:2] == "08"
