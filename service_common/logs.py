"""Structured logs on standard error, from which nothing can escape by accident."""

import logging
import sys
import traceback
from collections.abc import Iterator
from typing import Any, Final, TextIO

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

# What the shared code logs. A service adds its own names to these: ids and numbers, never content.
LOG_KEYS: Final = frozenset(
    (
        "address",
        "caller",
        "code",
        "error_type",
        "event",
        "exception",
        "grace_ms",
        "incident_id",
        "level",
        "limit",
        "logger",
        "method",
        "port",
        "ready",
        "reason",
        "service",
        "session_id",
        "timestamp",
        "version",
    )
)
_STRUCTLOG_KEYS: Final = frozenset(("_record", "_from_structlog"))


class KeyAllowList:
    """Drops every key that is not listed, and tells only how many there were.

    Sealed bytes and prompts cannot reach a log because somebody passed one value too many.
    """

    def __init__(self, keys: frozenset[str]) -> None:
        self._keys = keys | _STRUCTLOG_KEYS

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        kept = {key: value for key, value in event.items() if key in self._keys}
        if len(kept) < len(event):
            kept["dropped_keys"] = len(event) - len(kept)
        return kept


class ExceptionLines:
    """Renders `exc_info` as the types and the frames of an exception, without its text.

    The text of an exception can quote the data it choked on.
    """

    def __init__(self, *, with_text: bool) -> None:
        self._with_text = with_text

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        error = _exception(event.pop("exc_info", None))
        if error is not None:
            lines = traceback.format_exception(error) if self._with_text else _frames(error)
            event["exception"] = "".join(lines).rstrip("\n")
        return event


def configure_logs(
    level: str = "INFO",
    *,
    keys: frozenset[str] = LOG_KEYS,
    exception_text: bool = False,
    pretty: bool | None = None,
    stream: TextIO | None = None,
) -> None:
    """Send the logs of this process, those of libraries included, to standard error.

    A terminal gets coloured lines, anything else one JSON object a line.

    Args:
        level: Name of the lowest level shown.
        keys: The keys that may appear.
        exception_text: Show the text of exceptions; for development.
        pretty: Coloured lines or JSON; None decides by whether it goes to a terminal.
        stream: Where to write instead of standard error.
    """
    target = stream or sys.stderr
    renderer = _renderer(pretty=target.isatty() if pretty is None else pretty)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        ExceptionLines(with_text=exception_text),
        KeyAllowList(keys),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.captureWarnings(capture=True)
    logging.basicConfig(handlers=[handler], level=level, force=True)


def _renderer(*, pretty: bool) -> Processor:
    if pretty:
        return structlog.dev.ConsoleRenderer()
    return structlog.processors.JSONRenderer(serializer=_json)


def _json(event: EventDict, **_options: Any) -> str:
    # A value of a strange type is named by its type: its repr could say anything.
    return orjson.dumps(event, default=lambda value: f"<{type(value).__name__}>").decode()


def _exception(exc_info: Any) -> BaseException | None:
    if isinstance(exc_info, BaseException):
        return exc_info
    if isinstance(exc_info, tuple):
        return _exception(exc_info[1])
    return sys.exc_info()[1] if exc_info else None


def _frames(error: BaseException) -> Iterator[str]:
    origin = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if origin is not None:
        yield from _frames(origin)
        yield "which led to\n"
    yield from traceback.format_tb(error.__traceback__)
    yield f"{type(error).__module__}.{type(error).__qualname__}\n"
    if isinstance(error, BaseExceptionGroup):
        for number, member in enumerate(error.exceptions, start=1):
            yield f"member {number}\n"
            yield from _frames(member)
