"""Carrying out decided steps in memory: the write, the site's inbox, and who is told."""

import logging
from collections.abc import Callable
from typing import NamedTuple

from relay_service.core.churn import Churn, record_lapse
from relay_service.core.inbox import wants_seal
from relay_service.core.lapses import pass_time
from relay_service.core.limits import CHURN_QUIET_MS, CHURN_WINDOW_MS, MAXIMUM_LEASE_MS
from relay_service.core.model import (
    Change,
    ChurnReport,
    JobKey,
    JobState,
    LeaseEnd,
    LeaseRef,
    NoticeAdded,
    Route,
    RoutedJob,
    Swept,
)
from relay_service.core.moves import Transition, may_become
from relay_service.core.quotas import Quotas
from relay_service.store.base import Listener
from relay_service.store.memory_claims import ClaimMemory
from relay_service.store.memory_inbox import Inboxes
from relay_service.store.memory_recall import Recall
from relay_service.store.memory_reports import ChurnReports
from relay_service.store.memory_row import Row
from relay_service.store.memory_table import JobTable

# Leases that ended: for as long as a device may still believe in one, within reason.
_PAST_LEASES = 65_536
# Routes whose wasted windows are remembered.
_CHURNING_ROUTES = 65_536

_logger = logging.getLogger(__name__)


class PastLease(NamedTuple):
    """A lease that is over; `end` is None when its job was finished under it."""

    runner_id: str
    job_id: str
    end: LeaseEnd | None


class Steps:
    """The one place that changes a job.

    Changes are collected while an operation runs and told when all of it is written.
    """

    def __init__(self, quotas: Quotas) -> None:
        self.table = JobTable(quotas)
        self.inboxes = Inboxes(quotas.ended_notices_per_site)
        self.claims = ClaimMemory()
        self.reports = ChurnReports()
        self._past_leases: Recall[str, PastLease] = Recall(MAXIMUM_LEASE_MS, _PAST_LEASES)
        self._churn: Recall[Route, Churn] = Recall(CHURN_QUIET_MS, _CHURNING_ROUTES)
        self._changes: list[Change] = []
        self._listeners: list[Listener] = []

    def take(self, row: Row, step: Transition, now_ms: int) -> None:
        """Writes one step; one that leaves the job as it is writes nothing."""
        old, new = row.job, step.job
        if new is old:
            return
        if not may_become(old, new):
            raise AssertionError("a job made a move that its table does not know")
        self._changes.extend(self.table.replace(row, new))
        if step.word is not None:
            self._changes.append(step.word)
        if old is not None:
            self._close_lease(old, new, step.lease_end, now_ms)
            if step.wasted_window:
                self._count_lapse(old.route, now_ms)
        self._inform(old, new, step, now_ms)

    def pass_time(self, now_ms: int) -> Swept:
        """Takes every step that is due, in order of its instant."""
        requeued: list[JobKey] = []
        ended: list[JobKey] = []
        while (row := self.table.due.pop(now_ms)) is not None:
            job = row.known
            step = pass_time(job, now_ms)
            if step is None:
                continue
            self.take(row, step, now_ms)
            if step.job is None:
                ended.append(job.key)
            elif step.job.state is not job.state:
                requeued.append(job.key)
        self.inboxes.give_up(now_ms)
        return Swept(requeued, ended)

    def may_be_due(self, now_ms: int) -> bool:
        """Whether `pass_time` may have something to do; False is certain."""
        return self.table.due.may_be_due(now_ms) or self.inboxes.may_be_due(now_ms)

    def next_due_ms(self) -> int | None:
        instants = (self.table.due.next_due_ms(), self.inboxes.next_due_ms())
        return min((instant for instant in instants if instant is not None), default=None)

    def past_lease(self, runner_id: str, lease: LeaseRef, now_ms: int) -> PastLease | None:
        """What is known of a lease that is over, told to its holder only."""
        past = self._past_leases.get(lease.lease_id, now_ms)
        if past is None or (past.runner_id, past.job_id) != (runner_id, lease.job_id):
            return None
        return past

    def listen(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def say(self, change: Change) -> None:
        """Tells of something that is no step of a job."""
        self._changes.append(change)
        self.tell()

    def tell(self) -> None:
        """Tells the listeners what changed; a listener that fails harms nobody else."""
        if not self._changes:
            return
        changes, self._changes = self._changes, []
        for listener in tuple(self._listeners):
            for change in changes:
                try:
                    listener(change)
                except Exception:
                    _logger.exception("a listener of the store failed")

    def close(self) -> None:
        self._listeners.clear()

    def _close_lease(self, old: RoutedJob, new: RoutedJob | None, end: LeaseEnd | None, now_ms: int) -> None:
        claim = old.claim
        if claim is None:
            return
        if new is None or new.claim is None:
            past = PastLease(claim.runner_id, old.key.job_id, end)
            self._past_leases.put(claim.lease_id, past, now_ms)
            self.claims.forget(claim.lease_id)
        elif new.state is JobState.DONE:
            self.claims.forget(claim.lease_id)

    def _count_lapse(self, route: Route, now_ms: int) -> None:
        churn, due = record_lapse(self._churn.get(route, now_ms) or Churn(), now_ms)
        self._churn.put(route, churn, now_ms)
        if due:
            report = ChurnReport(route, len(churn.lapses_at_ms), CHURN_WINDOW_MS, now_ms)
            self.reports.add(report)
            self._changes.append(report)

    def _inform(self, old: RoutedJob | None, new: RoutedJob | None, step: Transition, now_ms: int) -> None:
        job = old or new
        if job is None:
            return
        if step.notice is not None:
            self.inboxes.post(job.key, step.notice, now_ms)
            self._changes.append(NoticeAdded(job.key.site_id))
        elif new is None:
            # Forgotten without a word: its site has collected the result.
            self.inboxes.clear(job.key)
        elif wants_seal(old) and not wants_seal(new):
            self.inboxes.withdraw(job.key)
