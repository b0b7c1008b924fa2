"""What the client library logs, said in words of ours.

Its texts quote the server's, with the host, the user and whatever was sent; and while a database is away they
come several times a second.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

import psycopg
import structlog

from durable_service.postgres.faults import unavailable

_log: Final = structlog.get_logger(__name__)

_LOGGERS: Final = ("psycopg", "psycopg.pool")
_LOST: Final = "a connection to the database was lost"
_AGAIN_SECONDS: Final = 60.0


class LibraryLog(logging.Filter):
    """Lets nothing through; what it means is logged here, each problem once a minute at most."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        """Take the time, in seconds, from there."""
        super().__init__()
        self._steady = steady
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        problem, now = _problem(record), self._steady()
        said_at = self._said.get(problem)
        if said_at is None or now - said_at >= _AGAIN_SECONDS:
            self._said[problem] = now
            _log.warning("database_trouble", problem=problem)
        return False


def speak_for_the_library() -> None:
    """Takes the place of the library's own log, for the whole process; again is the same."""
    for name in _LOGGERS:
        # A filter that is there already is not added again.
        logging.getLogger(name).addFilter(_SPEAKER)


def _problem(record: logging.LogRecord) -> str:
    values = record.args if isinstance(record.args, tuple) else ()
    error = next((value for value in values if isinstance(value, psycopg.Error | OSError)), None)
    return _LOST if error is None else unavailable(error).message


_SPEAKER: Final = LibraryLog()
