"""The owner's own record of what strangers asked this machine to do."""

import json
import os
import stat
import threading
from collections.abc import Mapping
from pathlib import Path

from service_common.clocks import Clock, SystemClock

MAX_BYTES = 10_485_760
KEEP = 5


class PromptLogUnavailable(Exception):  # noqa: N818 - a refusal to run, not a defect
    """The log cannot be written, so the job must not run. The message is for the owner alone."""


class PromptLog:
    """Append-only JSON lines, one a job, readable by the owner alone.

    A line is with the operating system before `log_ingress` returns, so it outlives the daemon; callers run
    a job only after that. Answers are never logged. One daemon writes one log.
    """

    def __init__(
        self, path: Path | None, *, max_bytes: int = MAX_BYTES, keep: int = KEEP, clock: Clock | None = None
    ) -> None:
        """Prepare; nothing is opened before the first line.

        Args:
            path: The file, or None to log nothing.
            max_bytes: Size over which the file is set aside as `NAME.1`, older ones as `NAME.2` and so on.
            keep: How many files are kept beside the current one.
            clock: Stamps the lines.
        """
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()

    @property
    def enabled(self) -> bool:
        """Whether prompts are logged at all."""
        return self._path is not None

    def prepare(self) -> None:
        """Make the folder and the file, so that a log that cannot be written shows before the first job.

        Raises:
            PromptLogUnavailable: It cannot be written.
        """
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(_open_private(self._path))
        except OSError as error:
            raise _unavailable(self._path, error) from error

    def log_ingress(self, job_id: str, site: str, owner: str, kind: str, text: str) -> None:
        """Record a job that is about to run.

        Args:
            job_id: The job.
            site: Key id of the site that sealed it.
            owner: Whose job it is.
            kind: What is to be done.
            text: The prompt, or the conversation as text.

        Raises:
            PromptLogUnavailable: It could not be recorded.
        """
        self._write({"job_id": job_id, "site": site, "owner": owner, "kind": kind, "text": text})

    def log_event(self, event: str, keys: Mapping[str, str]) -> None:
        """Record what happened to the keys of a site.

        Args:
            event: A word for it.
            keys: Key ids by their part in it.

        Raises:
            PromptLogUnavailable: It could not be recorded.
        """
        self._write({"event": event, **keys})

    def _write(self, fields: Mapping[str, str]) -> None:
        if self._path is None:
            return
        entry = {"at_ms": self._clock.now_ms(), **fields}
        # ASCII: a prompt can hold neither a line end nor a character that breaks a terminal or a reader.
        line = json.dumps(entry, ensure_ascii=True).encode("ascii") + b"\n"
        with self._lock:
            try:
                self._append(self._path, line)
            except OSError as error:
                raise _unavailable(self._path, error) from error

    def _append(self, path: Path, line: bytes) -> None:
        self._rotate(path, len(line))
        descriptor = _open_private(path)
        try:
            start = os.fstat(descriptor).st_size
            try:
                _write_all(descriptor, line)
            except OSError:
                # Half a line, left by a full disk, would swallow the next one.
                os.ftruncate(descriptor, start)
                raise
        finally:
            os.close(descriptor)

    def _rotate(self, path: Path, incoming: int) -> None:
        try:
            size = path.lstat().st_size
        except FileNotFoundError:
            return
        if size == 0 or size + incoming <= self._max_bytes:
            return
        if self._keep == 0:
            path.unlink()
            return
        # Oldest first, so that no file is overwritten before it has moved on.
        for number in range(self._keep - 1, 0, -1):
            older = _numbered(path, number)
            if older.exists():
                older.replace(_numbered(path, number + 1))
        path.replace(_numbered(path, 1))


def _unavailable(path: Path, error: OSError) -> PromptLogUnavailable:
    return PromptLogUnavailable(f"{path}: {error.strerror or error}")


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _open_private(path: Path) -> int:
    """Open for appending; a link is refused, since it could lead prompts to a place others can read."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("not a regular file")
        os.fchmod(descriptor, 0o600)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
