"""The one who changes the projection: a change after the other, each noted, shared and in force at once."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import structlog

from relay_service import projection_edits as edits
from relay_service import projection_writing as writing
from relay_service.core.identity import PublicIdentity
from relay_service.core.projection import Projection
from relay_service.projection import FileProjection, ProjectionSource, is_news, same_decisions
from relay_service.projection_audit import FILE, RELAYS
from relay_service.projection_differences import differences
from relay_service.projection_edits import Edit
from relay_service.projection_exchange import ProjectionExchange
from relay_service.projection_file import ProjectionError, format_projection, parse_projection
from service_common.atomic_file import create_file
from service_common.errors import ServiceError

_log: Final = structlog.get_logger(__name__)

_ATTEMPTS: Final = 16
# What a relay finds at its start, by whether the file was edited meanwhile.
_FOUND: Final[dict[bool | None, str]] = {
    None: "first seen",
    True: "edited while no relay watched it",
    False: "the change above did not happen: the relay ended before",
}
_FORGETFUL: Final = "; this relay keeps it in its memory alone, so a restart forgets it"

Answer = TypeVar("Answer")


class ProjectionConflictError(Exception):
    """Another revision is in force than the change was made from.

    Attributes:
        revision: The one in force.
    """

    def __init__(self, revision: int) -> None:
        super().__init__(f"revision {revision} is in force")
        self.revision = revision


class ProjectionReadOnlyError(Exception):
    """The projection cannot be changed here, and nothing was. The text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What came of a change.

    Attributes:
        revision: In force now.
        summary: The change in words.
        changed: False when everything was as wanted.
    """

    revision: int
    summary: str
    changed: bool


class ProjectionKeeper:
    """Carries out decisions, whoever makes them.

    A decision is noted in the trail of the file, then shared with the other relays, then in the file, then in
    force here. One that was begun is carried to its end, though its caller goes away.

    Args:
        forgetful: Neither a file nor a shared store keeps what is decided.
    """

    def __init__(
        self, source: ProjectionSource, exchange: ProjectionExchange, *, forgetful: bool = False
    ) -> None:
        self._source = source
        self._exchange = exchange
        self._forgetful = forgetful
        self._file = source if isinstance(source, FileProjection) else None
        self._works: set[asyncio.Future[Any]] = set()
        if self._file is not None:
            self._file.accept = self._accept_edit
            exchange.adopted = self._write_adopted

    async def begin(self) -> None:
        """Agrees with the other relays, and notes what became of the file while no relay watched it.

        Raises:
            ServiceError: STORE_UNAVAILABLE.
        """
        file = self._file
        await self._exchange.begin(has_file=file is not None, edited=None if file is None else file.edited)
        if file is not None:
            await self._note(file, [_FOUND[file.edited]], self._source.current.revision, file.good)

    async def change(
        self, actor: str, change: Callable[[Projection], Edit], *, expected_revision: int | None = None
    ) -> Kept:
        """Makes one change on top of whatever is in force.

        Args:
            actor: Who decides.
            change: Called with the projection in force, perhaps several times.
            expected_revision: Refuse unless this one is in force.

        Raises:
            EditError: The change does not fit what is in force.
            ProjectionError: The projection would not be sound.
            ProjectionConflictError: Another revision is in force.
            ProjectionReadOnlyError: The file cannot be written, or holds an edit that is broken.
            ServiceError: STORE_UNAVAILABLE.
        """
        return await self._to_the_end(self._change(actor, change, expected_revision))

    async def replace(self, actor: str, projection: Projection, expected_revision: int) -> Kept:
        """Puts a whole projection in force in place of the one of that revision; its own does not count.

        The same content under the revision that it produced is answered as the first time.

        Raises:
            ProjectionError: The projection is not sound.
            ProjectionConflictError: Another revision is in force.
            ProjectionReadOnlyError: The file cannot be written, or holds an edit that is broken.
            ServiceError: STORE_UNAVAILABLE.
        """

        def whole(current: Projection) -> Edit:
            repeated = current.revision == expected_revision + 1 and same_decisions(current, projection)
            if current.revision != expected_revision and not repeated:
                raise ProjectionConflictError(current.revision)
            return Edit(projection, "the whole projection replaced")

        return await self.change(actor, whole)

    async def register(self, owner: str, identity: PublicIdentity, label: str, actor: str) -> str:
        """Approves a device of an owner and returns its runner id, minted at the first time.

        Repeated for the same key and owner it answers as the first time.

        Raises:
            EditError: The key belongs to a device that is another person's or is revoked.
            ProjectionError: The owner is no id.
            ProjectionReadOnlyError: The file cannot be written, or holds an edit that is broken.
            ServiceError: STORE_UNAVAILABLE.
        """
        minted = ""

        def pair(current: Projection) -> Edit:
            nonlocal minted
            minted, edit = edits.pair_device(current, owner, identity, label)
            return edit

        await self.change(actor, pair)
        return minted

    async def settle(self) -> None:
        """Returns when what was begun has been carried to its end."""
        while self._works:
            await asyncio.wait(self._works)

    async def _to_the_end(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        task = asyncio.ensure_future(work)
        self._works.add(task)
        task.add_done_callback(self._finished)
        return await asyncio.shield(task)

    def _finished(self, task: asyncio.Future[Any]) -> None:
        self._works.discard(task)
        if not task.cancelled():
            # Looked at here as well, for a caller that has gone away.
            task.exception()

    async def _change(
        self, actor: str, change: Callable[[Projection], Edit], expected_revision: int | None
    ) -> Kept:
        async with self._source.lock:
            for _ in range(_ATTEMPTS):
                await self._look_around()
                current = self._source.current
                if expected_revision not in {None, current.revision}:
                    raise ProjectionConflictError(current.revision)
                edit = change(current)
                if same_decisions(edit.projection, current):
                    return Kept(current.revision, edit.summary, changed=False)
                revised = replace(edit.projection, revision=current.revision + 1)
                content = await asyncio.to_thread(_checked, revised, current)
                if await self._put(revised, content, actor):
                    _log.info("projection_changed", actor=actor, revision=revised.revision)
                    forgetful = _FORGETFUL if self._forgetful else ""
                    return Kept(revised.revision, edit.summary + forgetful, changed=True)
            raise ProjectionConflictError(self._source.current.revision)

    async def _look_around(self) -> None:
        """Takes up what others have decided, in the store and in the file."""
        await self._exchange.refresh()
        if self._file is not None:
            await self._file.look()
            if self._file.problem is not None:
                raise ProjectionReadOnlyError(
                    "the projection file on the relay's machine is gone or holds an edit that is broken; "
                    "mend it first, relay-service projection check shows where"
                )

    async def _put(self, revised: Projection, content: bytes, actor: str) -> bool:
        if self._file is None:
            if not await self._exchange.claim(revised):
                return False
            self._exchange.put_in_force(revised)
            return True
        changes = differences(self._source.current, revised)
        try:
            draft = await writing.draft(self._file, content, actor, changes, revised.revision)
        except (writing.FileEditedError, ProjectionError):
            # Edited since it was looked at: once more.
            return False
        except OSError as error:
            raise ProjectionReadOnlyError(
                f"the relay cannot write its projection file or the trail beside it ({error.strerror}); "
                "nothing was changed"
            ) from None
        try:
            return await self._place(draft, revised, actor)
        finally:
            await draft.close()

    async def _place(self, draft: writing.Draft, revised: Projection, actor: str) -> bool:
        why = "the store could not be reached"
        claimed = False
        try:
            claimed = await self._exchange.claim(revised)
            why = "another relay was quicker"
        finally:
            if not claimed:
                await self._withdraw(draft, actor, why)
        if claimed:
            try:
                await draft.place()
            except OSError as error:
                # It is in force at the other relays already.
                self._complain("projection_file_not_written", error)
            self._exchange.put_in_force(revised)
        return claimed

    async def _withdraw(self, draft: writing.Draft, actor: str, why: str) -> None:
        try:
            await draft.withdraw(actor, why, self._source.current.revision)
        except OSError as error:
            self._complain("projection_change_not_noted", error)

    async def _accept_edit(self, projection: Projection, digest: bytes) -> None:
        """Puts a sound edit of the file in force; called with the lock held."""
        file = self._file
        if file is None:
            return
        for _ in range(_ATTEMPTS):
            away = await self._is_away()
            current = self._source.current
            if not is_news(projection, current):
                await self._note(file, ["the same decisions in other words"], current.revision, digest)
                return
            revised = replace(projection, revision=max(projection.revision, current.revision + 1))
            await self._note(file, differences(current, revised), revised.revision, digest)
            if away or await self._claim_or_owe(revised):
                self._exchange.put_in_force(revised)
                return

    async def _is_away(self) -> bool:
        """Catches up with the other relays; whether the store is away, when the edit counts all the same."""
        try:
            await self._exchange.refresh()
        except ServiceError:
            self._exchange.owe()
            return True
        return False

    async def _claim_or_owe(self, revised: Projection) -> bool:
        try:
            return await self._exchange.claim(revised)
        except ServiceError:
            self._exchange.owe()
            return True

    async def _write_adopted(self, adopted: Projection) -> None:
        """Brings the file up to what the other relays have; called with the lock held."""
        file = self._file
        if file is None:
            return
        content = format_projection(adopted).encode()
        try:
            if file.edited is None and file.trail.last() is None:
                # Nothing tells whether somebody's work is in it.
                await asyncio.to_thread(_keep_copy, file)
            draft = await writing.draft(file, content, RELAYS, ["taken over"], adopted.revision)
        except (writing.FileEditedError, ProjectionError):
            # The edit comes into force with the next look at the file.
            return
        except OSError as error:
            self._complain("projection_file_not_written", error)
            return
        try:
            await draft.place()
        except OSError as error:
            self._complain("projection_file_not_written", error)
        finally:
            await draft.close()

    async def _note(self, file: FileProjection, changes: Sequence[str], revision: int, digest: bytes) -> None:
        """Notes what is in the file, unless it is noted: several relays may have one file and one trail."""
        try:
            await asyncio.to_thread(writing.note, file, FILE, changes, revision, digest)
        except OSError as error:
            # The file itself is in force; a read-only folder has no trail.
            self._complain("projection_change_not_noted", error)

    def _complain(self, event: str, error: OSError) -> None:
        _log.warning(event, problem=error.strerror, revision=self._source.current.revision)


def _checked(revised: Projection, current: Projection) -> bytes:
    """The document of a projection, read again as every relay will."""
    document = format_projection(revised).encode()
    parse_projection(document, "the projection", current)
    return document


def _keep_copy(file: FileProjection) -> None:
    with contextlib.suppress(FileExistsError):
        create_file(file.path.with_name(file.path.name + ".outdated"), file.path.read_bytes())
