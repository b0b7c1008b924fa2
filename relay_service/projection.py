"""Where the relay's projection comes from, and who hears of a change."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from relay_service.core.projection import Projection
from relay_service.projection_audit import AuditTrail
from relay_service.projection_file import ProjectionError, parse_projection, read_projection_file
from service_common.clocks import Clock
from service_common.metrics import Metrics

_log: Final = structlog.get_logger(__name__)

_POLL_SECONDS: Final = 0.5

ProjectionListener = Callable[[Projection, Projection], object]


class ProjectionSource:
    """Holds the projection in force.

    Attributes:
        current: The projection in force. It is replaced as a whole.
        problem: What is wrong with the newest that was offered, in one line; None when it is in force.
        lock: Held by whoever changes what is in force and awaits something meanwhile.
    """

    def __init__(self, projection: Projection | None = None, *, metrics: Metrics | None = None) -> None:
        self.current = projection or Projection()
        self.problem: str | None = None
        self.lock = asyncio.Lock()
        self._listeners: list[ProjectionListener] = []
        declare = metrics or Metrics()
        self._broken_gauge = declare.gauge(
            "relay_projection_broken", "1 while the newest projection that was offered cannot be used"
        )
        self._revision_gauge = declare.gauge(
            "relay_projection_revision", "Revision of the projection in force"
        )
        self._revision_gauge.set(self.current.revision)

    @property
    def broken(self) -> bool:
        """Whether the newest projection that was offered cannot be used, so that an older one is in force."""
        return self.problem is not None

    def listen(self, listener: ProjectionListener) -> Callable[[], None]:
        """Have `listener(old, new)` called with every change, when the new one is in force already.

        Returns:
            What to call to hear no more.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def replace(self, projection: Projection) -> None:
        """Put a projection in force and tell every listener before returning.

        Its revision is raised to one above the current one unless it is higher already: a revision never
        stands for two contents.
        """
        old = self.current
        revision = max(projection.revision, old.revision + 1)
        if revision != projection.revision:
            projection = replace(projection, revision=revision)
        self.current = projection
        self._revision_gauge.set(self.current.revision)
        self._mark_broken(None)
        for listener in tuple(self._listeners):
            try:
                listener(old, self.current)
            except Exception as error:  # noqa: BLE001 - a revocation must reach the others as well
                _log.error("projection_listener_failed", exc_info=error)

    def _mark_broken(self, problem: str | None) -> None:
        self.problem = problem
        self._broken_gauge.set(problem is not None)


class FileProjection(ProjectionSource):
    """A projection that follows a file.

    A file that is broken, half-written or gone leaves the last good projection in force. What `replace` puts
    in force stands until the file changes; it is not written to the file.

    Attributes:
        path: The file.
        trail: Its changes so far.
        edited: Whether somebody edited the file since a relay last wrote or accepted it, as found at the
            start; None without a trail to tell.
        accept: What puts an edit of the file in force, the lock held.
    """

    def __init__(self, path: Path, clock: Clock, *, metrics: Metrics | None = None) -> None:
        """Load the file.

        Raises:
            ProjectionError: There is no usable projection to begin with.
        """
        super().__init__(metrics=metrics)
        self.path = path
        self.trail = AuditTrail(path, clock)
        self.accept: Callable[[Projection, bytes], Awaitable[None]] = self._accept
        self._clock = clock
        self._stamp = _stamp_of(path)
        self._settled = False
        content, self.good = read_with_digest(path)
        self._bad: bytes | None = None
        projection = parse_projection(content, str(path))
        entry = self.trail.last()
        self.edited = None if entry is None else not entry.knows(self.good.hex())
        if entry is not None:
            # A revision never stands for two contents, over a restart neither.
            floor = entry.revision + (1 if self.edited else 0 if entry.sha256 == self.good.hex() else -1)
            projection = replace(projection, revision=max(projection.revision, floor))
        self.replace(projection)

    async def watch(self) -> None:
        """Follow the file until cancelled, looking at it twice a second."""
        while True:
            await self._clock.sleep(_POLL_SECONDS)
            try:
                await self.poll()
            except Exception as error:  # noqa: BLE001 - the operator's next edit must still be seen
                _log.error("projection_watch_failed", exc_info=error)

    async def poll(self) -> None:
        """Look at the file, and put what it holds in force if that is new and sound."""
        async with self.lock:
            await self.look()

    async def look(self) -> None:
        """Do what `poll` does, for one who holds the lock."""
        stamp = _stamp_of(self.path)
        if self._settled and stamp == self._stamp:
            return
        # A file system's clock ticks in milliseconds or worse, so a second write within one tick of the one
        # that was read leaves no trace. After each change the file is therefore read once more.
        self._settled = stamp == self._stamp
        self._stamp = stamp
        try:
            # Off the loop, as everything that takes long for a large file: heartbeats are waiting there.
            content, digest = await asyncio.to_thread(read_with_digest, self.path)
        except ProjectionError as error:
            # What keeps a file from being read, too many open files for one, can end without a trace on it.
            self._settled = False
            self._reject(str(error).encode(), error)
            return
        if digest == self.good:
            self._mark_sound()
        elif digest != self._bad:
            await self._judge(content, digest)

    async def _judge(self, content: bytes, digest: bytes) -> None:
        source = str(self.path)
        try:
            projection = await asyncio.to_thread(parse_projection, content, source, self.current)
        except ProjectionError as error:
            self._reject(digest, error)
            return
        self._mark_sound()
        before = self.current
        # If this fails, it is tried again, although the file stays as it is.
        self._settled = False
        await self.accept(projection, digest)
        self.good = digest
        if self.current is not before:
            _log.info("projection_replaced", path=source, revision=self.current.revision)

    async def _accept(self, projection: Projection, _digest: bytes) -> None:
        if is_news(projection, self.current):
            self.replace(projection)

    def _mark_sound(self) -> None:
        if self.broken:
            self._bad = None
            self._mark_broken(None)
            _log.info("projection_mended", path=str(self.path))

    def _reject(self, digest: bytes, error: ProjectionError) -> None:
        self._mark_broken(error.summary)
        # The same content is complained about once, however often it is seen.
        if digest != self._bad:
            self._bad = digest
            _log.error(
                "projection_broken",
                path=str(self.path),
                problem=error.summary,
                problems=error.total,
                revision=self.current.revision,
            )


def same_decisions(one: Projection, other: Projection) -> bool:
    """Tell whether two projections differ in nothing but their revision."""
    return _content(one) == _content(other)


def is_news(projection: Projection, current: Projection) -> bool:
    """Tell whether a file with this says anything; another spelling of the same decisions does not."""
    return not same_decisions(projection, current) or projection.revision > current.revision


def read_with_digest(path: Path) -> tuple[bytes, bytes]:
    """Return what is in the file, and its SHA-256.

    Raises:
        ProjectionError: It cannot be read.
    """
    content = read_projection_file(path)
    return content, hashlib.sha256(content).digest()


def _stamp_of(path: Path) -> tuple[int, ...] | None:
    """What changes when the file is written, replaced or made readable; None when it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev


def _content(projection: Projection) -> tuple[object, ...]:
    parts = (projection.sites, projection.consents, projection.devices, projection.rosters)
    return *parts, projection.revoked
