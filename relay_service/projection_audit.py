"""The trail of a projection file: one line for each change, saying who, what and which content came of it."""

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from service_common.clocks import Clock

SUFFIX = ".audit.jsonl"
# Who made a change that no caller made: an editor on the file, or another relay.
FILE = "file"
RELAYS = "relays"

_MODE = 0o600
# A line is far shorter; what is before the last lines is for people alone.
_TAIL_BYTES = 262_144


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """What the last line says of the file.

    Attributes:
        revision: In force with that line.
        sha256: Of the file's content with it, as hexadecimal text.
        previous_sha256: Of the content before it, which a relay that dies between line and file leaves.
    """

    revision: int
    sha256: str
    previous_sha256: str

    def knows(self, sha256: str) -> bool:
        """Tell whether a file with this content was left by whoever wrote the line."""
        return sha256 in {self.sha256, self.previous_sha256}


class AuditTrail:
    """Lines of JSON in a file beside the projection; they are only ever added to."""

    def __init__(self, projection: Path, clock: Clock) -> None:
        self.path = projection.with_name(projection.name + SUFFIX)
        self._clock = clock

    def last(self) -> AuditEntry | None:
        """Return what the last whole line says; None without one, or when the trail cannot be read."""
        for line in reversed(self._tail().splitlines()):
            entry = _entry(line)
            if entry is not None:
                return entry
        return None

    def append(self, actor: str, changes: Sequence[str], entry: AuditEntry) -> None:
        """Add a line and have it on the disk before returning.

        Raises:
            OSError: It cannot be written.
        """
        instant = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        line = {
            "time": instant.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "actor": actor,
            "changes": list(changes),
            "revision": entry.revision,
            "sha256": entry.sha256,
            "previousSha256": entry.previous_sha256,
        }
        self._write(json.dumps(line, ensure_ascii=False).encode("utf-8") + b"\n")

    def _write(self, line: bytes) -> None:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _MODE)
        with os.fdopen(descriptor, "ab", buffering=0) as file:
            size = os.fstat(descriptor).st_size
            # A line that a power cut tore must not take the next one with it.
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            file.write(b"\n" + line if torn else line)
            os.fsync(descriptor)

    def _tail(self) -> bytes:
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return file.read()
        return b""


def _entry(line: bytes) -> AuditEntry | None:
    try:
        match json.loads(line):
            case {"revision": int(revision), "sha256": str(sha256), "previousSha256": str(previous)}:
                return AuditEntry(revision, sha256, previous)
    except ValueError:
        # Torn, or the first part of a tail.
        pass
    return None
