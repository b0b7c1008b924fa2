"""What other people's work has used of this device. No I/O and no clock."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000


@dataclass(slots=True)
class Use:
    """One job of somebody else.

    Attributes:
        number: Names it within the budget.
        at_ms: When it began, epoch milliseconds.
        service: What it used.
        characters: What it was given and may say, together; after its end, what it has said.
    """

    number: int
    at_ms: int
    service: str
    characters: int


class OthersBudget:
    """The jobs of other people within the last 24 hours.

    A clock that is set back makes nothing forgotten: what lies ahead of it counts as recent.
    """

    def __init__(self) -> None:
        self._uses: dict[int, Use] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._uses)

    def __iter__(self) -> Iterator[Use]:
        return iter(self._uses.values())

    def begin(self, at_ms: int, service: str, characters: int) -> Use:
        """Count a job that begins now."""
        use = Use(self._next, at_ms, service, characters)
        self.restore(use)
        return use

    def restore(self, use: Use) -> None:
        """Count a job that an earlier process began."""
        self._uses[use.number] = use
        self._next = max(self._next, use.number + 1)

    def settle(self, number: int, characters: int) -> None:
        """Count what a job has used, in place of what it might have."""
        if number in self._uses:
            self._uses[number].characters = characters

    def begun_since(self, at_ms: int) -> int:
        """Return how many jobs began after this instant."""
        return sum(use.at_ms > at_ms for use in self._uses.values())

    def characters_since(self, at_ms: int, service: str) -> int:
        """Return what jobs that began after this instant have used of a service."""
        return sum(
            use.characters for use in self._uses.values() if use.at_ms > at_ms and use.service == service
        )

    def forget(self, now_ms: int) -> None:
        """Drop what is older than a day."""
        self._uses = {number: use for number, use in self._uses.items() if use.at_ms > now_ms - DAY_MS}
