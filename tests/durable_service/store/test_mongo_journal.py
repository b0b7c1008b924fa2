"""Which entries of a journal stay, and where their texts are."""

import pytest

pytest.importorskip("pymongo")

from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.model import TaskEvent
from durable_service.store.base import StoreLimits
from durable_service.store.mongo_journal import Entry, rewritten


def event(sequence: int, data: str = "1", at_ms: int = 0) -> TaskEvent:
    return TaskEvent(sequence, "note", at_ms, None, 1, CanonicalJson(data), f"e{sequence}")


def journal_of(count: int, limits: StoreLimits, data: str = "1") -> tuple[Entry, ...]:
    entries: tuple[Entry, ...] = ()
    for sequence in range(1, count + 1):
        entries = rewritten(entries, [event(sequence, data)], limits, 0).entries
    return entries


def test_the_first_entries_are_added() -> None:
    journal = rewritten((), [event(1), event(2)], StoreLimits(), 0)
    assert [entry.sequence for entry in journal.entries] == [1, 2]
    assert journal.added == journal.entries
    assert (journal.moved, journal.dropped) == ((), ())


def test_the_texts_of_old_entries_leave_the_document() -> None:
    entries = journal_of(32, StoreLimits())
    assert all(entry.text is not None for entry in entries)
    journal = rewritten(entries, [event(33)], StoreLimits(), 0)
    assert [entry.sequence for entry in journal.moved] == list(range(1, 22))
    assert all(entry.text is not None for entry in journal.moved)
    assert [entry.sequence for entry in journal.entries if entry.text is not None] == list(range(22, 34))
    assert [entry.sequence for entry in journal.entries] == list(range(1, 34))
    assert journal.added is None


def test_a_document_with_the_largest_entries_stays_small() -> None:
    largest = '"' + "x" * 32_766 + '"'
    entries = journal_of(256, StoreLimits(), largest)
    kept = sum(len(entry.text or b"") for entry in entries)
    assert len(entries) == 256
    assert kept <= 262_144
    assert entries[-1].text is not None


def test_what_one_write_adds_stays_with_it() -> None:
    largest = '"' + "x" * 32_766 + '"'
    journal = rewritten((), [event(number, largest) for number in range(1, 20)], StoreLimits(), 0)
    assert journal.moved == ()
    assert journal.added == journal.entries


def test_bounds_drop_the_oldest() -> None:
    entries = journal_of(5, StoreLimits(events_per_task=5))
    journal = rewritten(entries, [event(6), event(7)], StoreLimits(events_per_task=5), 0)
    assert [entry.sequence for entry in journal.dropped] == [1, 2]
    assert [entry.sequence for entry in journal.entries] == [3, 4, 5, 6, 7]
    small = StoreLimits(event_bytes_per_task=3)
    assert [entry.sequence for entry in journal_of(5, small)] == [3, 4, 5]
    old = rewritten(entries, [event(6, at_ms=100)], StoreLimits(event_age_ms=100), 100)
    assert [entry.sequence for entry in old.entries] == [6]
