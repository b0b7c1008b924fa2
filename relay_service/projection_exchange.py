"""Relays on one store follow one projection, whichever of them was told of it first."""

import asyncio
from collections.abc import Callable
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
    """Gives what this relay's file says to the others, and takes what they say.

    The highest revision is in force everywhere. A relay that starts with a file gives its
    content out under a revision of its own, so an edit made while all were down counts.
    """

    def __init__(self, store: RoutingStore, source: ProjectionSource, background: Background) -> None:
        self._store = store
        self._source = source
        self._background = background
        self._lock = asyncio.Lock()
        self._adopting = False
        self._endings: list[Callable[[], None]] = []

    async def begin(self, *, has_file: bool) -> None:
        """Agrees with the other relays and follows them from now on.

        Args:
            has_file: this relay's projection comes from a file, and not from the others.

        Raises:
            ServiceError: STORE_UNAVAILABLE.
        """
        self._endings = [self._store.listen(self._note), self._source.listen(self._offer)]
        shared = await self._store.shared_projection()
        if shared is None:
            if has_file:
                await self._share(self._source.current)
        elif has_file and not self._is_in_force(shared):
            self._source.replace(replace(self._source.current, revision=shared.revision + 1))
        else:
            await self.catch_up()

    def end(self) -> None:
        """Follows nobody any more."""
        for ending in self._endings:
            ending()

    async def catch_up(self) -> None:
        """Takes over what is in force for all, if it is newer than what is in force here."""
        async with self._lock:
            shared = await self._store.shared_projection()
            if shared is not None and shared.revision > self._source.current.revision:
                await self._adopt(shared)

    def missed(self) -> None:
        """News may have been missed, and what was to be shared may not have been."""
        self._background.run(self._agree())

    async def _agree(self) -> None:
        """Takes over what is newer, and shares what changed here while the store was away."""
        await self.catch_up()
        shared = await self._store.shared_projection()
        if self._source.current.revision > (0 if shared is None else shared.revision):
            await self._share(self._source.current)

    def _note(self, change: Change) -> None:
        if isinstance(change, ProjectionShared) and change.revision > self._source.current.revision:
            self._background.run(self.catch_up())

    def _offer(self, _old: Projection, new: Projection) -> None:
        if not self._adopting:
            self._background.run(self._share(new))

    async def _share(self, projection: Projection) -> None:
        document = format_projection(projection).encode()
        if not await self._store.share_projection(projection.revision, document):
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
        self._adopting = True
        try:
            self._source.replace(replace(projection, revision=shared.revision))
        finally:
            self._adopting = False
        _log.info("projection_replaced", path="shared", revision=self._source.current.revision)

    def _is_in_force(self, shared: SharedProjection) -> bool:
        """The shared one says what is in force here, apart from its revision."""
        mine = format_projection(replace(self._source.current, revision=shared.revision))
        return mine.encode() == shared.document
