"""The journal of a task on MongoDB: its list within the task's document, its older texts beside it.

New entries commit with the task in the one write of its document. The list there is the truth about which
entries are kept; it has the texts of the newest alone, so that no document outgrows the database's bound. An
older text is copied to a collection of its own before the write that takes it out of the document. A process
that dies in between leaves a copy that nobody looks at and the next one overwrites with the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from durable_service.core.canonical_json import canonical_bytes
from durable_service.core.model import TaskEvent
from durable_service.store.base import StoreLimits
from durable_service.store.record_document import encode_event

# When a document has more texts than the first, it is left with the second.
_MOST_TEXTS: Final = 32
_TEXTS_LEFT: Final = 12
_MOST_TEXT_BYTES: Final = 262_144
_TEXT_BYTES_LEFT: Final = 98_304


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a journal's list.

    Attributes:
        size: bytes of its data, as the bounds count them.
        text: the entry itself; None when it lies beside the document.
    """

    sequence: int
    at_ms: int
    size: int
    event_id: str | None
    text: bytes | None

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {"n": self.sequence, "at": self.at_ms, "size": self.size}
        if self.event_id is not None:
            document["id"] = self.event_id
        if self.text is not None:
            document["text"] = self.text
        return document


class Rewritten(NamedTuple):
    """A journal after a write.

    Attributes:
        added: the new entries, when nothing else in the list changes; else None.
        moved: entries whose texts go out of the document.
        dropped: entries that are no longer kept.
    """

    entries: tuple[Entry, ...]
    added: tuple[Entry, ...] | None
    moved: tuple[Entry, ...]
    dropped: tuple[Entry, ...]


def entry_of(event: TaskEvent) -> Entry:
    return Entry(
        event.sequence, event.at_ms, canonical_bytes(event.data), event.event_id, encode_event(event)
    )


def entries_of(documents: Iterable[dict[str, Any]]) -> tuple[Entry, ...]:
    return tuple(
        Entry(item["n"], item["at"], item["size"], item.get("id"), item.get("text")) for item in documents
    )


def rewritten(
    entries: tuple[Entry, ...], events: Sequence[TaskEvent], limits: StoreLimits, now_ms: int
) -> Rewritten:
    """The journal with new entries, within the bounds of the store and of a document."""
    added = tuple(entry_of(event) for event in events)
    everything = entries + added
    kept = within_age(within_bounds(everything, limits), limits, now_ms) if added else everything
    dropped = everything[: len(everything) - len(kept)]
    moved = _moved(kept, len(added))
    if moved:
        gone = {entry.sequence for entry in moved}
        kept = tuple(_without_text(entry) if entry.sequence in gone else entry for entry in kept)
    plain = not moved and not dropped
    return Rewritten(kept, added if plain else None, moved, dropped)


def within_bounds(entries: tuple[Entry, ...], limits: StoreLimits) -> tuple[Entry, ...]:
    """The newest entries that are not too many nor too large; the newest of all is always one."""
    kept = entries[-limits.events_per_task :]
    most = limits.event_bytes_per_task
    if most is None:
        return kept
    total = 0
    for place in range(len(kept) - 1, -1, -1):
        total += kept[place].size
        if total > most and place < len(kept) - 1:
            return kept[place + 1 :]
    return kept


def within_age(entries: tuple[Entry, ...], limits: StoreLimits, now_ms: int) -> tuple[Entry, ...]:
    if limits.event_age_ms is None:
        return entries
    until_ms = now_ms - limits.event_age_ms
    young = next((place for place, entry in enumerate(entries) if entry.at_ms > until_ms), len(entries))
    return entries[young:]


def _moved(entries: tuple[Entry, ...], new: int) -> tuple[Entry, ...]:
    """Those whose texts do not stay; the new ones do, since nothing but this write has them."""
    with_text = [entry for entry in entries if entry.text is not None]
    if len(with_text) <= _MOST_TEXTS and _text_bytes(with_text) <= _MOST_TEXT_BYTES:
        return ()
    staying = 0
    stay_bytes = 0
    for entry in reversed(with_text):
        stay_bytes += len(entry.text or b"")
        fits = staying < _TEXTS_LEFT and stay_bytes <= _TEXT_BYTES_LEFT
        if staying >= new and not fits:
            break
        staying += 1
    return tuple(with_text[: len(with_text) - staying])


def _text_bytes(entries: Iterable[Entry]) -> int:
    return sum(len(entry.text or b"") for entry in entries)


def _without_text(entry: Entry) -> Entry:
    return Entry(entry.sequence, entry.at_ms, entry.size, entry.event_id, None)
