"""Where the principals in force come from, and who hears of a change."""

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from durable_service.principals import Principals
from durable_service.principals_file import PrincipalsError, parse_principals, read_principals_file
from service_common.clocks import Clock
from service_common.metrics import Metrics

_log: Final = structlog.get_logger(__name__)

_POLL_SECONDS: Final = 0.5

PrincipalsListener = Callable[[Principals, Principals], object]


class PrincipalsSource:
    """Holds the principals in force.

    Attributes:
        current: the principals in force, replaced as a whole.
        problem: what is wrong with the newest that were offered, in one line; None when they are in force.
    """

    def __init__(self, principals: Principals | None = None, *, metrics: Metrics | None = None) -> None:
        self.current = principals or Principals()
        self.problem: str | None = None
        self._listeners: list[PrincipalsListener] = []
        self._broken_gauge = (metrics or Metrics()).gauge(
            "durable_principals_broken", "1 while the newest principals that were offered cannot be used"
        )

    def listen(self, listener: PrincipalsListener) -> Callable[[], None]:
        """Has `listener(old, new)` called with every change, when the new ones are in force already."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def replace(self, principals: Principals) -> None:
        """Puts principals in force and tells every listener before returning."""
        old, self.current = self.current, principals
        self.mark(None)
        for listener in tuple(self._listeners):
            try:
                listener(old, principals)
            except Exception as error:  # noqa: BLE001 - a revocation must reach the others as well
                _log.error("principals_listener_failed", exc_info=error)

    def mark(self, problem: str | None) -> None:
        """Says whether the newest principals that were offered can be used."""
        self.problem = problem
        self._broken_gauge.set(problem is not None)


class FilePrincipals(PrincipalsSource):
    """Principals that follow a file; a broken one leaves the last good ones in force."""

    def __init__(self, path: Path, clock: Clock, *, metrics: Metrics | None = None) -> None:
        """Loads the file.

        Raises:
            PrincipalsError: there are no usable principals to begin with.
        """
        super().__init__(metrics=metrics)
        self.path = path
        self._clock = clock
        self._stamp = _stamp_of(path)
        self._settled = False
        content = read_principals_file(path)
        self._seen = hashlib.sha256(content).digest()
        self.replace(parse_principals(content, str(path)))

    async def watch(self) -> None:
        """Follows the file until cancelled, looking at it twice a second."""
        while True:
            await self._clock.sleep(_POLL_SECONDS)
            try:
                await self.poll()
            except Exception as error:  # noqa: BLE001 - the operator's next edit must still be seen
                _log.error("principals_watch_failed", exc_info=error)

    async def poll(self) -> None:
        """Looks at the file, and puts what it holds in force if that is new and sound."""
        stamp = _stamp_of(self.path)
        if self._settled and stamp == self._stamp:
            return
        # A second write within one tick of the file system's clock leaves no trace, so after each change the
        # file is read once more.
        self._settled = stamp == self._stamp
        self._stamp = stamp
        try:
            content = await asyncio.to_thread(read_principals_file, self.path)
        except PrincipalsError as error:
            self._settled = False
            self._reject(b"", error)
            return
        digest = hashlib.sha256(content).digest()
        if digest == self._seen:
            return
        try:
            principals = await asyncio.to_thread(parse_principals, content, str(self.path))
        except PrincipalsError as error:
            self._reject(digest, error)
            return
        self._seen = digest
        self.replace(principals)
        _log.info("principals_replaced", path=str(self.path), principals=len(principals.by_id))

    def _reject(self, digest: bytes, error: PrincipalsError) -> None:
        # The same content is complained about once, however often it is seen.
        if digest == self._seen and self.problem is not None:
            return
        self._seen = digest
        first = str(error).splitlines()[0]
        self.mark(first)
        _log.error("principals_broken", path=str(self.path), problem=first)


def _stamp_of(path: Path) -> tuple[int, ...] | None:
    """What changes when the file is written, replaced or made readable; None when it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev
