"""What the memory store remembers for a while: facts about things that are gone."""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

# Entries dropped by one call at most: more than one call adds, so that the memory is bounded
# and yet no call pays for a long silence.
_DROPPED_PER_CALL = 8


class Recall(Generic[Key, Value]):
    """A mapping whose entries are forgotten after some time, or for newer ones."""

    def __init__(self, kept_ms: int, maximum: int | None = None) -> None:
        self._kept_ms = kept_ms
        self._maximum = maximum
        # Ordered, because a plain dict is slow to find its first key after many removals.
        self._entries: OrderedDict[Key, tuple[int, Value]] = OrderedDict()

    def put(self, key: Key, value: Value, now_ms: int, kept_ms: int | None = None) -> None:
        """Remembers the value from now on."""
        self._entries.pop(key, None)
        self._entries[key] = (now_ms + (self._kept_ms if kept_ms is None else kept_ms), value)
        self._drop(now_ms)

    def get(self, key: Key, now_ms: int) -> Value | None:
        entry = self._entries.get(key)
        return None if entry is None or entry[0] <= now_ms else entry[1]

    def pop(self, key: Key) -> None:
        self._entries.pop(key, None)

    def values(self, now_ms: int) -> Iterator[Value]:
        return (value for until, value in self._entries.values() if until > now_ms)

    def __len__(self) -> int:
        return len(self._entries)

    def _drop(self, now_ms: int) -> None:
        for _ in range(min(_DROPPED_PER_CALL, len(self._entries))):
            oldest = next(iter(self._entries))
            crowded = self._maximum is not None and len(self._entries) > self._maximum
            if self._entries[oldest][0] > now_ms and not crowded:
                return
            del self._entries[oldest]
