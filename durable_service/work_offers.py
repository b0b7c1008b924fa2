"""Who is told that a task can be claimed: one of those who wait for its driver, not all of them."""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from durable_service.core.availability import Queue, availability
from durable_service.core.definition import Driver, TaskKey
from durable_service.core.model import TaskRecord
from durable_service.store.base import Candidate, TaskChange
from service_common.clocks import Clock, TimerHandle

# The worker whose lease has run out is often gone, and its stream not known to be: one hint could go there.
_HINTS_AFTER_LAPSE: Final = 3


class Seeker(Protocol):
    """A waiting call or a stream of a worker."""

    @property
    def tenant_id(self) -> str:
        """Whose tasks it takes."""

    @property
    def drivers(self) -> frozenset[Driver]:
        """What it can execute."""

    def offer(self, driver: Driver, count: int) -> bool:
        """Says that tasks of this driver can be claimed; False when it does not want to know now."""


class WorkOffers:
    """Those who look for work, by tenant and driver.

    An offer is a hint: it claims nothing, and who does not hear of it asks the store now and then.

    Args:
        on_due: told of a task whose pause is over.
    """

    def __init__(self, clock: Clock, on_due: Callable[[TaskRecord], None] = lambda _: None) -> None:
        self._clock = clock
        self._seekers: dict[tuple[str, Driver], dict[int, Seeker]] = {}
        self._timers: dict[TaskKey, TimerHandle] = {}
        self.on_due = on_due

    def enter(self, seeker: Seeker) -> None:
        """The seeker wants to hear of work; entering twice is entering once."""
        for driver in seeker.drivers:
            self._seekers.setdefault((seeker.tenant_id, driver), {})[id(seeker)] = seeker

    def leave(self, seeker: Seeker) -> None:
        """The seeker wants no work any more."""
        for driver in seeker.drivers:
            place = (seeker.tenant_id, driver)
            present = self._seekers.get(place)
            if present is not None:
                present.pop(id(seeker), None)
                if not present:
                    del self._seekers[place]

    def note(self, change: TaskChange) -> None:
        """A task has changed; when it can be claimed now, somebody is told."""
        record = change.after
        if record is None:
            if change.before is not None:
                self._forget(change.before.key)
            return
        self._forget(record.key)
        at_ms = _available_at_ms(record)
        if at_ms is None:
            return
        now_ms = record.updated_at_ms
        if at_ms > now_ms:
            # Leases and approvals that run out are written down when they do; a pause is not.
            if record.lease is None and at_ms == record.not_before_ms:
                self._wait(record, (at_ms - now_ms) / 1000)
        elif change.before is None or not _waits_at(change.before, change.before.updated_at_ms):
            # By the time of its last change: a lease that ran out since has been told to nobody.
            hints = _HINTS_AFTER_LAPSE if _has_lapsed(change) else 1
            self.tell(record.key.tenant_id, record.definition.driver, hints=hints)

    def tell(self, tenant_id: str, driver: Driver | None, count: int = 1, *, hints: int = 1) -> None:
        """Offers work of a driver to the seekers that have waited longest and want it, `hints` of them."""
        if driver is None:
            return
        present = self._seekers.get((tenant_id, driver), {})
        for number, seeker in tuple(present.items()):
            if seeker.offer(driver, count):
                if number in present:
                    # To the end of the line.
                    present[number] = present.pop(number)
                hints -= 1
                if not hints:
                    return

    def close(self) -> None:
        """Drops every timer."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _wait(self, record: TaskRecord, seconds: float) -> None:
        def due() -> None:
            self._timers.pop(record.key, None)
            self.tell(record.key.tenant_id, record.definition.driver)
            self.on_due(record)

        self._timers[record.key] = self._clock.call_later(seconds, due)

    def _forget(self, key: TaskKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()


def work_by_driver(candidates: Iterable[Candidate]) -> dict[Driver, int]:
    """How many of these tasks there are of each driver."""
    counts: dict[Driver, int] = {}
    for candidate in candidates:
        if candidate.driver is not None:
            counts[candidate.driver] = counts.get(candidate.driver, 0) + 1
    return counts


def _has_lapsed(change: TaskChange) -> bool:
    before, after = change.before, change.after
    return (
        before is not None
        and before.lease is not None
        and after is not None
        and after.updated_at_ms >= before.lease.expires_at_ms
    )


def _available_at_ms(record: TaskRecord) -> int | None:
    place = availability(record)
    return place.at_ms if place is not None and place.queue is Queue.WORK else None


def _waits_at(record: TaskRecord, now_ms: int) -> bool:
    at_ms = _available_at_ms(record)
    return at_ms is not None and at_ms <= now_ms
