"""What a device must not forget when it is restarted: grants it has used, and work it has done for others."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relay_service.client.grants import ACCEPTED_MS, AHEAD_MS, Grant
from relay_service.client.ledger_file import Entry, LedgerError, LedgerFile
from relay_service.client.others_budget import DAY_MS, HOUR_MS, OthersBudget, Use
from relay_service.client.spent_grants import SpentGrants
from service_common.clocks import Clock

__all__ = ["Charge", "Ledger", "LedgerError"]

logger = logging.getLogger("sealwork.client")

_LINES: Final = 4_096
# Twice its window: what is forgotten is refused, and grants need not be used in the order of their issue.
_REMEMBERED_MS: Final = 2 * (ACCEPTED_MS + AHEAD_MS)


@dataclass(frozen=True, slots=True)
class Charge:
    """What a job of somebody else may use.

    Attributes:
        service: Of which service.
        characters: Of its payload and of the longest answer together.
    """

    service: str
    characters: int


class Ledger:
    """Counts at once, and is on the disk before the work begins."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        """Prepare; nothing is touched before `open`.

        Args:
            path: The file; None remembers for the life of this process alone.
            clock: Its wall half dates what is counted.
        """
        self._file = None if path is None else LedgerFile(path)
        self._clock = clock
        self._spent = SpentGrants(_REMEMBERED_MS)
        self._budget = OthersBudget()
        self._lines = 0

    def open(self) -> None:
        """Take over what an earlier process has left.

        Raises:
            LedgerError: The file cannot be read.
        """
        if self._file is None:
            return
        entries = self._file.open()
        try:
            for entry in entries:
                self._take(entry)
        except (KeyError, TypeError, ValueError):
            raise LedgerError(
                "the device's ledger is damaged; put the file aside to start a new one"
            ) from None
        self._lines = len(entries)

    def is_spent(self, grant: Grant) -> bool:
        """Tell whether a grant was used, or may have been."""
        return self._spent.is_spent(grant.grant_id, grant.issued_at_ms)

    @property
    def others_within_hour(self) -> int:
        """Jobs of other people begun within the last hour."""
        return self._budget.begun_since(self._clock.now_ms() - HOUR_MS)

    @property
    def others_within_day(self) -> int:
        """Jobs of other people begun within the last 24 hours."""
        return self._budget.begun_since(self._clock.now_ms() - DAY_MS)

    def characters_within_day(self, service: str) -> int:
        """Return what other people have used of a service within the last 24 hours."""
        return self._budget.characters_since(self._clock.now_ms() - DAY_MS, service)

    async def begin(self, grant: Grant | None, charge: Charge | None) -> int | None:
        """Use a grant and count a job, both before the work.

        Args:
            grant: What allows the job; None when this device needs none.
            charge: What it may use; None for the owner's own.

        Returns:
            The number to settle the charge by; None when there is none.

        Raises:
            LedgerError: It could not be written, so the job must not run.
            ValueError: The grant is spent.
        """
        entries: list[Entry] = []
        number = None
        # Counted before the first await: two jobs that begin in one instant see each other.
        if grant is not None:
            if self.is_spent(grant):
                raise ValueError("the grant is spent")
            self._spent.add(grant.grant_id, grant.issued_at_ms)
            entries.append(_spent_entry(grant.grant_id, grant.issued_at_ms))
        if charge is not None:
            use = self._budget.begin(self._clock.now_ms(), charge.service, charge.characters)
            entries.append(_use_entry(use))
            number = use.number
        await self._write(entries)
        return number

    async def settle(self, number: int, characters: int) -> None:
        """Count what a job has used, in place of all that it might have.

        A ledger that cannot be written keeps the larger number, which errs on the owner's side.
        """
        self._budget.settle(number, characters)
        try:
            await self._write([{"settle": number, "characters": characters}])
        except LedgerError as error:
            logger.warning("what a job has used could not be written down: %s", error)

    def close(self) -> None:
        """Write nothing more."""
        if self._file is not None:
            self._file.close()

    async def _write(self, entries: list[Entry]) -> None:
        self._budget.forget(self._clock.now_ms())
        if self._file is None or not entries:
            return
        self._lines += len(entries)
        if self._lines <= _LINES:
            await self._file.append(entries)
            return
        # What is counted already holds the new entries.
        self._lines = 0
        await self._file.replace(self._entries())

    def _entries(self) -> list[Entry]:
        return [
            {"horizon_ms": self._spent.horizon_ms},
            *(_spent_entry(grant_id, at_ms) for grant_id, at_ms in self._spent),
            *map(_use_entry, self._budget),
        ]

    def _take(self, entry: Entry) -> None:
        match entry:
            case {"grant": str(grant_id), "issued_at_ms": int(at_ms)}:
                self._spent.add(grant_id, at_ms)
            case {"horizon_ms": int(at_ms)}:
                self._spent.raise_horizon(at_ms)
            case {"use": int(number), "at_ms": int(at_ms), "service": str(service), "characters": int(count)}:
                self._budget.restore(Use(number, at_ms, service, count))
            case {"settle": int(number), "characters": int(count)}:
                self._budget.settle(number, count)
            case _:
                raise ValueError("an entry of no known form")


def _spent_entry(grant_id: str, issued_at_ms: int) -> Entry:
    return {"grant": grant_id, "issued_at_ms": issued_at_ms}


def _use_entry(use: Use) -> Entry:
    return {"use": use.number, "at_ms": use.at_ms, "service": use.service, "characters": use.characters}
