"""Looking for words where they must not be: in the memory, the log and the traffic of the relay."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_CHUNK_BYTES = 1 << 23
_OVERLAP_BYTES = 1 << 10
# Shorter pieces of English stand in the documentation strings that any Python process holds.
_WINDOW_WORDS = 6
_LEAST_BYTES = 24
_WINDOWS_PER_TEXT = 6


@dataclass(frozen=True)
class Finding:
    """What a search of one place came to.

    Attributes:
        place: Where.
        searched_bytes: How much there was.
        content_hits: Pieces of prompts and answers that were found.
        control_hits: Whether the control was found, which must be there: it shows that the search works.
    """

    place: str
    searched_bytes: int
    content_hits: int
    control_hits: int


class NotReadableError(Exception):
    """This system does not let us look into the memory of another process."""


def pieces_of(texts: Iterable[str]) -> list[bytes]:
    """Return what to look for: each text as a whole, and some runs of six words of each."""
    pieces: dict[bytes, None] = {}
    for text in texts:
        words = text.split(" ")
        runs = [" ".join(words[at : at + _WINDOW_WORDS]) for at in range(len(words) - _WINDOW_WORDS + 1)]
        step = max(1, len(runs) // _WINDOWS_PER_TEXT)
        for piece in (text, *runs[::step]):
            pieces[piece.encode()] = None
    return [piece for piece in pieces if len(piece) >= _LEAST_BYTES]


def search(place: str, chunks: Iterable[bytes], pieces: Sequence[bytes], control: bytes) -> Finding:
    """Count which pieces occur anywhere in the chunks."""
    found: set[bytes] = set()
    searched = 0
    for chunk in chunks:
        searched += len(chunk)
        found.update(piece for piece in (*pieces, control) if piece not in found and piece in chunk)
    return Finding(place, searched, len(found - {control}), int(control in found))


def memory_of(pid: int) -> Iterator[bytes]:
    """Read the memory that a process can write to, in overlapping chunks.

    Raises:
        NotReadableError: The system does not allow it.
    """
    try:
        regions = list(_writable_regions(Path(f"/proc/{pid}/maps").read_text()))
        memory = Path(f"/proc/{pid}/mem").open("rb", buffering=0)  # noqa: SIM115 - closed below
    except OSError as error:
        raise NotReadableError(str(error.strerror)) from None
    with memory:
        for start, end in regions:
            for at in range(start, end, _CHUNK_BYTES):
                try:
                    memory.seek(at)
                    yield memory.read(min(_CHUNK_BYTES + _OVERLAP_BYTES, end - at))
                except (OSError, ValueError, OverflowError):
                    # The region went away meanwhile, or is one of the kernel's own.
                    continue


def _writable_regions(maps: str) -> Iterator[tuple[int, int]]:
    for line in maps.splitlines():
        addresses, permissions = line.split()[:2]
        if permissions.startswith("rw"):
            start, _, end = addresses.partition("-")
            yield int(start, 16), int(end, 16)
