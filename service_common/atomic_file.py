"""Writing a file so that whoever reads it sees the old content or the new one, and never a part."""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

_NEW_MODE = 0o600


def replace_file(path: Path, content: bytes) -> None:
    """Put new content in the place of a file, with the mode and, as far as allowed, the owner that it has.

    A symbolic link stays, and the file that it names is replaced.

    Raises:
        OSError: There is no such file, or its folder cannot be written to.
    """
    with replacement(path, content) as put:
        put()


@contextlib.contextmanager
def replacement(path: Path, content: bytes) -> Iterator[Callable[[], None]]:
    """Have new content ready on the disk, so that putting it in the place of the file hardly can fail.

    What the block is given puts it there; a block that ends without that leaves the old file as it is.

    Raises:
        OSError: There is no such file, or its folder cannot be written to.
    """
    target = path.resolve(strict=True)
    status = target.stat()
    with _temporary(target) as temporary:
        _write(temporary, content)
        # Before the mode, which a change of the owner may cut down. Only root can give files away.
        with contextlib.suppress(PermissionError):
            os.chown(temporary, -1, status.st_gid)
        with contextlib.suppress(PermissionError):
            os.chown(temporary, status.st_uid, -1)
        temporary.chmod(status.st_mode & 0o777)

        def put() -> None:
            temporary.replace(target)
            _flush_folder(target.parent)

        yield put


def create_file(path: Path, content: bytes) -> None:
    """Make a file that only its owner can read.

    Raises:
        FileExistsError: There is one already; it is not touched.
        OSError: The folder cannot be written to.
    """
    with _temporary(path) as temporary:
        _write(temporary, content)
        # A link, unlike a rename, does not replace what is there.
        os.link(temporary, path)
    _flush_folder(path.parent)


@contextlib.contextmanager
def locked_folder(path: Path) -> Iterator[None]:
    """Keep out others who change the file by way of this function, until the block ends.

    The lock is on its folder: the file itself is another one after each change.

    Raises:
        OSError: The folder cannot be read.
    """
    descriptor = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _NEW_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _flush_folder(folder: Path) -> None:
    # Without it a power cut can undo the rename.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
