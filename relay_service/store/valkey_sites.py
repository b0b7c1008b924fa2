"""Calls of the library's functions, and what their replies say beside the answer."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from relay_service.store.base import StoreUnavailable
from relay_service.store.valkey_changes import Listeners
from relay_service.store.valkey_connection import CommandConnection, Observer
from relay_service.store.valkey_library import Library
from relay_service.store.valkey_names import site_tag
from relay_service.store.valkey_settings import settings_problems
from relay_service.store.valkey_wire import Part, ResponseError, Wire, exchange

_logger = logging.getLogger(__name__)

# A name that no site has yet: only a lease led here.
_BY_LEASE = ""
_BROKEN_TOLD_SECONDS = 60.0
_MISSING = "Function not found"
_LOADED_BEFORE = "already exists"


class ScriptError(Exception):
    """A function failed on the server: a key holds what no release of this store writes."""


class Functions:
    """Calls functions of the library and loads it where it is missing."""

    def __init__(
        self,
        make_wire: Callable[[], Wire],
        library: Library,
        prefix: str,
        on_gap: Callable[[], None] | None = None,
        on_moved: Callable[[], None] = lambda: None,
    ) -> None:
        self.connection = CommandConnection(make_wire, self._load, on_moved=on_moved)
        self.prefix = prefix
        # Counts connections: what was noted on an earlier one may have been lost with the server.
        self.epoch = 0
        self._library = library
        self._on_gap = on_gap

    async def command(self, name: str, *parts: Part) -> Any:
        """Performs a plain command.

        Raises:
            StoreUnavailable: the server cannot be asked.
            ScriptError: the key holds something else.
        """
        try:
            return await self.connection.call(name, *parts)
        except ResponseError as error:
            raise ScriptError(f"{name}: {error}") from error

    async def call(
        self, name: str, keys: tuple[str, ...], *arguments: Part, observer: Observer | None = None
    ) -> Any:
        """Calls a function.

        Raises:
            StoreUnavailable: the server cannot be asked.
            ScriptError: the function failed.
        """
        try:
            return await self.submit(name, keys, *arguments, observer=observer)
        except ResponseError as error:
            if _MISSING not in str(error):
                raise ScriptError(f"{name}: {error}") from error
        # Somebody has removed the functions, or a failover went to a server that never had them.
        try:
            await self.connection.call("FUNCTION", "LOAD", "REPLACE", self._library.text)
            return await self.submit(name, keys, *arguments, observer=observer)
        except ResponseError as error:
            raise ScriptError(f"{name}: {error}") from error

    def submit(
        self, name: str, keys: tuple[str, ...], *arguments: Part, observer: Observer | None = None
    ) -> asyncio.Future[Any]:
        """Calls a function now; the answer comes later.

        Raises:
            StoreUnavailable: there is no connection.
        """
        function = self._library.prefix + name
        return self.connection.submit("FCALL", function, len(keys), *keys, *arguments, observer=observer)

    async def _load(self, wire: Wire) -> None:
        try:
            await exchange(wire, "FUNCTION", "LOAD", self._library.text)
        except ResponseError as error:
            # The name says what is in it, so one that is there is this very one.
            if _LOADED_BEFORE not in str(error):
                raise
        if self.epoch == 0:
            for problem in await settings_problems(wire):
                _logger.warning("the store's server: %s", problem)
        self.epoch += 1
        if self.epoch > 1 and self._on_gap is not None:
            # Replies that were lost have told nobody of what changed.
            self._on_gap()


class Sites:
    """Operations on single sites, each one atomic step on the server.

    Attributes:
        unreadable: stored values met so far that could not be read.
    """

    def __init__(
        self,
        functions: Functions,
        listeners: Listeners,
        clock_setting: Callable[[], str],
        on_unreadable: Callable[[str, str], None] | None = None,
    ) -> None:
        """Makes it.

        Args:
            clock_setting: how the server's clock is shifted; for tests.
            on_unreadable: told the site and the job of a value that could not be read.
        """
        self.functions = functions
        self._listeners = listeners
        self.clock_setting = clock_setting
        self.unreadable = 0
        self._on_unreadable = on_unreadable
        self._registered: set[str] = set()
        # By the tag of a site, when its state is told of again.
        self._broken: dict[str, float] = {}
        self._registering: dict[str, asyncio.Future[None]] = {}
        self._epoch = 0
        self._due_key = f"{functions.prefix}{{sites}}:due"
        self._versions_key = f"{functions.prefix}{{sites}}:versions"

    def base(self, tag: str) -> str:
        """What all keys of a site begin with."""
        return f"{self.functions.prefix}{{{tag}}}:"

    async def ask(self, site_id: str, name: str, *arguments: Part) -> Any:
        """Performs an operation on a site.

        Raises:
            StoreUnavailable: the server cannot be asked.
            ScriptError: the operation failed.
        """
        return await self._ask(site_tag(site_id), site_id, name, arguments)

    async def ask_tag(self, tag: str, name: str, *arguments: Part) -> Any:
        """Performs an operation on the site that a lease leads to; see `ask`."""
        return await self._ask(tag, _BY_LEASE, name, arguments)

    async def ask_one_of_many(self, tag: str, site_id: str, name: str, *arguments: Part) -> Any:
        """As `ask`, for what goes over several sites; None when the keys of this one are broken.

        They are no reason to fail what is asked of the others.

        Raises:
            StoreUnavailable: the server cannot be asked.
        """
        try:
            return await self._ask(tag, site_id, name, arguments)
        except ScriptError as error:
            self._note_broken(tag, site_id, error)
            return None

    async def sweep(self, site_id: str) -> tuple[list[str], list[str]]:
        """Lets time pass at a site; the ids of jobs put back to the queue and of jobs gone."""
        requeued: list[str] = []
        ended: list[str] = []
        again = True
        while again:
            try:
                again, answer = await self._once(site_tag(site_id), site_id, "sweep", ())
            except ScriptError as error:
                # It stays due, and time goes on at the others.
                self._note_broken(site_tag(site_id), site_id, error)
                break
            requeued += [job_id.decode() for job_id in answer[0]]
            ended += [job_id.decode() for job_id in answer[1]]
        return requeued, ended

    async def register(self, site_id: str) -> None:
        """Makes a site known before anything is written for it, so that its clocks are watched."""
        if self._epoch != self.functions.epoch:
            self._epoch = self.functions.epoch
            self._registered.clear()
        if site_id in self._registered:
            return
        noted = self._registering.get(site_id)
        if noted is None:
            noted = asyncio.ensure_future(self._register(site_id))
            noted.add_done_callback(_forgive)
            self._registering[site_id] = noted
        # One for all who come meanwhile: whoever came first goes on first, so that jobs keep their order.
        await asyncio.shield(noted)

    async def _register(self, site_id: str) -> None:
        epoch = self._epoch
        try:
            await self.functions.command("ZADD", self._due_key, "NX", 0, site_id)
        finally:
            del self._registering[site_id]
        if epoch == self._epoch:
            self._registered.add(site_id)

    async def due(self) -> tuple[int, list[str], tuple[str, int] | None]:
        """The instant, the sites that may be due, and the earliest instant noted with its site."""
        now_ms, due, first = await self.functions.call("due_sites", (self._due_key,), self.clock_setting())
        earliest = (first[0].decode(), int(float(first[1]))) if first else None
        return now_ms, [site_id.decode() for site_id in due], earliest

    async def everywhere(self) -> list[str]:
        """Every site that was ever known, in order."""
        found = await self.functions.command("ZRANGE", self._due_key, 0, -1)
        return sorted(site_id.decode() for site_id in found)

    def _note_broken(self, tag: str, site_id: str, error: ScriptError) -> None:
        # Now and then, for it is met again with every turn of the sweeper.
        now = asyncio.get_running_loop().time()
        if self._broken.get(tag, 0.0) <= now:
            self._broken[tag] = now + _BROKEN_TOLD_SECONDS
            _logger.error("the keys of a site are broken: %s", error)
            self.note_unreadable(site_id, "")

    def note_unreadable(self, site_id: str, job_id: str) -> None:
        """Counts a value that could not be read and was skipped."""
        self.unreadable += 1
        _logger.warning("a stored job could not be read and is skipped")
        if self._on_unreadable is not None:
            self._on_unreadable(site_id, job_id)

    async def _ask(self, tag: str, site_id: str, name: str, arguments: tuple[Part, ...]) -> Any:
        again = True
        answer: Any = None
        while again:
            again, answer = await self._once(tag, site_id, name, arguments)
        return answer

    async def _once(self, tag: str, site_id: str, name: str, arguments: tuple[Part, ...]) -> tuple[bool, Any]:
        keys, origin = (self.base(tag),), self._listeners.origin
        again, _, answer = await self.functions.call(
            name, keys, self.clock_setting(), origin, site_id, *arguments, observer=self._take_notes
        )
        return bool(again), answer

    def _take_notes(self, reply: Any) -> None:
        if not reply[1]:
            return
        noted_id, hint, version, unreadable, published = reply[1]
        site_id = noted_id.decode()
        for job_id in unreadable:
            self.note_unreadable(site_id, job_id.decode(errors="replace"))
        if hint is not None:
            self._note_hint(site_id, version, hint)
        if published is not None:
            self._listeners.tell(published)

    def _note_hint(self, site_id: str, version: int, hint: bytes) -> None:
        """Passes on when a site is next due.

        Not waited for: commands keep their order, and a hint that is lost is found by the next
        visit to all sites.
        """
        keys = (self._due_key, self._versions_key)
        try:
            noted = self.functions.submit("note_site", keys, site_id, version, hint)
        except StoreUnavailable:
            return
        noted.add_done_callback(_forgive)


def _forgive(noted: asyncio.Future[Any]) -> None:
    error = None if noted.cancelled() else noted.exception()
    if error is not None and not isinstance(error, StoreUnavailable):
        _logger.warning("a site could not be noted: %s", error)
