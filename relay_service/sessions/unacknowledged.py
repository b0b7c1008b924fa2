"""Grants pushed on a stream that the device has not acknowledged yet."""

from collections.abc import Iterable

from relay_service.core.model import LeaseRef


class UnacknowledgedGrants:
    """Remembers each pushed grant until it is acknowledged or its time is up.

    All grants of a stream get the same time, so the order of pushing is the order of
    falling due.
    """

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: dict[str, tuple[LeaseRef, float]] = {}

    def push(self, lease: LeaseRef, due: float) -> None:
        """Notes a grant that must be acknowledged by `due` (monotonic seconds)."""
        self._due[lease.lease_id] = (lease, due)

    def acknowledge(self, lease_ids: Iterable[str]) -> None:
        """Forgets grants that the device has accepted; unknown ones are none of ours."""
        for lease_id in lease_ids:
            self._due.pop(lease_id, None)

    def next_due(self) -> float | None:
        """When the oldest grant's time is up."""
        for _, due in self._due.values():
            return due
        return None

    def take_overdue(self, now: float) -> list[LeaseRef]:
        """Grants whose time is up, forgotten here."""
        overdue = [lease for lease, due in self._due.values() if due <= now]
        self.acknowledge([lease.lease_id for lease in overdue])
        return overdue

    def take_all(self) -> list[LeaseRef]:
        """Every grant, forgotten here."""
        leases = [lease for lease, _ in self._due.values()]
        self._due.clear()
        return leases

    def __contains__(self, lease_id: str) -> bool:
        return lease_id in self._due

    def __len__(self) -> int:
        return len(self._due)
