"""Relays on one store follow one projection, whichever of them was told of it first."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog

from relay_service.core.model import Change, ProjectionShared
from relay_service.core.projection import Projection
from relay_service.projection import ProjectionSource
from relay_service.projection_file import ProjectionError, format_projection, parse_projection
from relay_service.store.base import RoutingStore, SharedProjection
from service_common.background import Background

_log = structlog.get_logger(__name__)


class ProjectionExchange:
    """Gives what this relay was told to the others, and takes what they say.

    The highest revision is in force everywhere. Methods that say so want the source's lock held.

    Attributes:
        adopted: Told of each projection that was taken over, the lock held.
    """

    def __init__(self, store: RoutingStore, source: ProjectionSource, background: Background) -> None:
        self._store = store
        self._source = source
        self._background = background
        self.adopted: Callable[[Projection], Awaitable[None]] = _ignore
        self._silent = False
        self._owed = False
        self._endings: list[Callable[[], None]] = []

    async def begin(self, *, has_file: bool, edited: bool | None = None) -> None:
        """Agrees with the other relays and follows them from now on.

        A file that nobody edited since a relay wrote it is outdated when the others have a higher revision,
        and what they have is taken over. An edited one is put in force everywhere.

        Args:
            has_file: This relay's projection comes from a file, and not from the others.
            edited: Whether that file was edited since; None when nothing tells, and the revision has to.

        Raises:
            ServiceError: STORE_UNAVAILABLE.
        """
        self._endings = [self._store.listen(self._note), self._source.listen(self._offer)]
        async with self._source.lock:
            while not await self._agree_at_start(has_file=has_file, edited=edited):
                # Another relay was quicker; what it shared is looked at in the same way.
                pass

    def end(self) -> None:
        """Follows nobody any more."""
        for ending in self._endings:
            ending()

    async def catch_up(self) -> None:
        """Takes over what is in force for all, if it is newer than what is in force here."""
        async with self._source.lock:
            await self.refresh()

    async def refresh(self) -> None:
        """Does what `catch_up` does, the lock held.

        Raises:
            ServiceError: STORE_UNAVAILABLE.
        """
        shared = await self._store.shared_projection()
        if self._owed:
            await self._pay(shared)
        elif shared is not None and shared.revision > self._source.current.revision:
            await self._adopt(shared)

    async def claim(self, projection: Projection) -> bool:
        """Puts a projection in force for the others, the lock held.

        Returns:
            False, and nothing was changed, when they have this revision or a higher one already.

        Raises:
            ServiceError: STORE_UNAVAILABLE.
        """
        return await self._store.share_projection(projection.revision, _document(projection))

    def put_in_force(self, projection: Projection) -> None:
        """Puts in force here what the others have."""
        self._silent = True
        try:
            self._source.replace(projection)
        finally:
            self._silent = False

    def owe(self) -> None:
        """What is in force here has to be shared once the store is back, whatever was shared meanwhile."""
        self._owed = True

    def missed(self) -> None:
        """News may have been missed, and what was to be shared may not have been."""
        self._background.run(self._agree())

    async def _agree_at_start(self, *, has_file: bool, edited: bool | None) -> bool:
        shared = await self._store.shared_projection()
        mine = self._source.current
        if shared is None:
            return not has_file or await self.claim(mine)
        if not has_file or (self._is_in_force(shared) and shared.revision >= mine.revision):
            await self.refresh()
            return True
        if shared.revision > mine.revision and not edited and not self._is_in_force(shared):
            _log.warning("projection_outdated", revision=mine.revision)
            await self.refresh()
            return True
        revised = replace(mine, revision=max(mine.revision, shared.revision + 1))
        if not await self.claim(revised):
            return False
        if revised.revision > mine.revision:
            self.put_in_force(revised)
        return True

    async def _agree(self) -> None:
        """Takes over what is newer, and shares what changed here while the store was away."""
        async with self._source.lock:
            await self.refresh()
            shared = await self._store.shared_projection()
            if self._source.current.revision > (0 if shared is None else shared.revision):
                await self.claim(self._source.current)

    async def _pay(self, shared: SharedProjection | None) -> None:
        """Shares what is owed on top of what the others have decided without knowing of it."""
        mine = self._source.current
        if shared is not None and shared.revision >= mine.revision:
            mine = replace(mine, revision=shared.revision + 1)
            self.put_in_force(mine)
        self._owed = not await self.claim(mine)

    def _note(self, change: Change) -> None:
        if isinstance(change, ProjectionShared) and change.revision > self._source.current.revision:
            self._background.run(self.catch_up())

    def _offer(self, _old: Projection, new: Projection) -> None:
        if not self._silent:
            self._background.run(self._share(new))

    async def _share(self, projection: Projection) -> None:
        if not await self.claim(projection):
            # Another relay was quicker, with this content or another: one of them has to count.
            await self.catch_up()

    async def _adopt(self, shared: SharedProjection) -> None:
        try:
            projection = await asyncio.to_thread(
                parse_projection, shared.document, "the shared projection", self._source.current
            )
        except ProjectionError as error:
            _log.error("shared_projection_broken", problem=error.summary, revision=shared.revision)
            return
        self.put_in_force(replace(projection, revision=shared.revision))
        _log.info("projection_replaced", path="shared", revision=self._source.current.revision)
        await self.adopted(self._source.current)

    def _is_in_force(self, shared: SharedProjection) -> bool:
        """The shared one says what is in force here, apart from its revision."""
        return _document(replace(self._source.current, revision=shared.revision)) == shared.document


def _document(projection: Projection) -> bytes:
    return format_projection(projection).encode()


async def _ignore(_projection: Projection) -> None:
    pass
