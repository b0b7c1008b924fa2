"""Changing a projection file from the relay: the trail first, then the file, or neither."""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from relay_service.projection import FileProjection, read_with_digest
from relay_service.projection_audit import AuditEntry
from service_common.atomic_file import locked_folder, replacement


class FileEditedError(Exception):
    """The file has been edited and this relay has not accepted the edit."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A new content of the file, noted in the trail, on the disk and not yet in its place."""

    file: FileProjection
    revision: int
    digest: bytes
    put: Callable[[], None]
    stack: ExitStack

    async def place(self) -> None:
        """Puts it in the place of the file.

        Raises:
            OSError: It could not be.
        """
        await asyncio.to_thread(self.put)
        self.file.good = self.digest

    async def withdraw(self, actor: str, why: str, revision: int) -> None:
        """Notes that what the trail announced did not happen.

        Raises:
            OSError: It could not be noted.
        """
        known = self.file.good.hex()
        entry = AuditEntry(revision, known, known)
        await asyncio.to_thread(self.file.trail.append, actor, [f"withdrawn: {why}"], entry)

    async def close(self) -> None:
        """Throws away what was not placed, and lets others at the file again."""
        await asyncio.to_thread(self.stack.close)


async def draft(
    file: FileProjection, content: bytes, actor: str, changes: Sequence[str], revision: int
) -> Draft:
    """Prepares a change of the file and notes it in the trail; `close` the answer in any case.

    Whoever changes the file with the project's own commands waits until then.

    Raises:
        FileEditedError: There is an edit that has to be looked at first.
        OSError: The file, its folder or the trail cannot be written; nothing was changed.
    """
    return await asyncio.to_thread(_draft, file, content, actor, changes, revision)


def note(file: FileProjection, actor: str, changes: Sequence[str], revision: int, digest: bytes) -> None:
    """Notes a change that is in the file already, unless the last line of the trail is of this content.

    Raises:
        OSError: It could not be noted.
    """
    last = file.trail.last()
    if last is None or last.sha256 != digest.hex():
        file.trail.append(actor, changes, AuditEntry(revision, digest.hex(), digest.hex()))


def _draft(file: FileProjection, content: bytes, actor: str, changes: Sequence[str], revision: int) -> Draft:
    digest = hashlib.sha256(content).digest()
    with ExitStack() as stack:
        put = stack.enter_context(_prepared(file, content))
        file.trail.append(actor, changes, AuditEntry(revision, digest.hex(), file.good.hex()))
        return Draft(file, revision, digest, put, stack.pop_all())


@contextmanager
def _prepared(file: FileProjection, content: bytes) -> Iterator[Callable[[], None]]:
    with locked_folder(file.path):
        _, digest = read_with_digest(file.path)
        if digest != file.good:
            raise FileEditedError
        with replacement(file.path, content) as put:
            yield put
