"""Running a server's event loop."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import structlog

_log: Final = structlog.get_logger(__name__)

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on uvloop, or on asyncio's own loop where uvloop is not installed."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.get_loop().set_exception_handler(_log_unhandled)
        return runner.run(main)


def tune_garbage_collector() -> None:
    """Spare the collector what was built at start, and let it run less often.

    Call it once, when everything is built: with thousands of sessions, collections at the default thresholds
    stop the process for up to a second. Freezing again and again would leak every cycle alive at the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 50, 1_000)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - is not available for every platform
    except ImportError:
        return None
    return uvloop.new_event_loop


def _log_unhandled(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # The default handler would log the repr of the failed task, and with it the text of its exception.
    _log.error(context["message"], exc_info=context.get("exception"))
