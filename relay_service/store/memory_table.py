"""The jobs of the memory store and every index over them, kept in step by one function."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import chain

from relay_service.core.inbox import wants_seal
from relay_service.core.model import Claim, JobState, JobStub, Route, RoutedJob, WorkAvailable
from relay_service.core.quotas import Quotas
from relay_service.store.memory_ages import QueuedAges
from relay_service.store.memory_due import DueTimes
from relay_service.store.memory_queue import Queues
from relay_service.store.memory_row import Row


class SiteShelf:
    """The jobs of one site.

    Attributes:
        rows: by job id.
        awaiting: those it is asked to seal, in the order of their grants.
        finished: those with a result, in the order of completion.
        result_bytes: ciphertext of these results.
    """

    __slots__ = ("awaiting", "finished", "result_bytes", "rows", "site_id")

    def __init__(self, site_id: str) -> None:
        self.site_id = site_id
        self.rows: dict[str, Row] = {}
        self.awaiting: dict[Row, None] = {}
        # Ordered, because a plain dict is slow to find its first key after many removals.
        self.finished: OrderedDict[Row, None] = OrderedDict()
        self.result_bytes = 0

    @property
    def unfinished(self) -> int:
        return len(self.rows) - len(self.finished)


class RunnerShelf:
    """The jobs of one runner.

    Attributes:
        held: the unfinished ones, in the order of their grants.
        rows: by bare job id, the finished ones too, because a runner names no site.
    """

    __slots__ = ("held", "rows")

    def __init__(self) -> None:
        self.held: dict[Row, None] = {}
        self.rows: dict[str, list[Row]] = {}


class JobTable:
    """Every job, found by site, by lease, by runner, by queue and by due time."""

    def __init__(self, quotas: Quotas) -> None:
        self.queues = Queues(quotas.unsealed_per_route)
        self.due = DueTimes()
        self.ages = QueuedAges()
        self._sites: dict[str, SiteShelf] = {}
        self._runners: dict[str, RunnerShelf] = {}
        self._leases: dict[str, Row] = {}

    def site(self, site_id: str) -> SiteShelf | None:
        return self._sites.get(site_id)

    def row(self, site_id: str, job_id: str) -> Row | None:
        shelf = self._sites.get(site_id)
        return None if shelf is None else shelf.rows.get(job_id)

    def new_row(self, site_id: str, stub: JobStub, now_ms: int) -> Row:
        """A place for a job that is about to be added."""
        shelf = self._sites.get(site_id)
        if shelf is None:
            shelf = self._sites[site_id] = SiteShelf(site_id)
        return Row(shelf, self.queues.of(Route(site_id, stub.owner)), now_ms)

    def rows(self) -> Iterator[Row]:
        return chain.from_iterable(shelf.rows.values() for shelf in self._sites.values())

    def held(self, runner_id: str) -> list[Row]:
        """The unfinished jobs of a runner."""
        shelf = self._runners.get(runner_id)
        return [] if shelf is None else list(shelf.held)

    def held_count(self, runner_id: str) -> int:
        shelf = self._runners.get(runner_id)
        return 0 if shelf is None else len(shelf.held)

    def leased(self, lease_id: str) -> Row | None:
        """The job that is held or was finished under this lease."""
        return self._leases.get(lease_id)

    def resolve(self, runner_id: str, job_id: str, lease_id: str) -> Row | None:
        """The job that a runner means when it names a job id and a lease.

        The job under that lease if it has that id; else a job of that id that this very
        runner holds. Never a job that the caller neither holds nor names by a live lease:
        that would tell it of another tenant's jobs. Nor a grant that is held back.
        """
        row = self._leases.get(lease_id)
        if row is not None and row.known.key.job_id == job_id and _is_known(row):
            return row
        shelf = self._runners.get(runner_id)
        rows = [] if shelf is None else list(filter(_is_known, shelf.rows.get(job_id, ())))
        return min(rows, key=lambda row: row.known.sequence) if rows else None

    def replace(self, row: Row, new: RoutedJob | None) -> Iterable[WorkAvailable]:
        """Puts a job in place of what the row held and moves every index along.

        A job's claim begins and ends but is never exchanged for another in one step.

        Args:
            new: None when the job is forgotten.

        Returns:
            What can be claimed now that could not be before.
        """
        old = row.job
        row.job = new
        self._replace_on_site(row, old, new)
        self._replace_claim(row, old, new)
        opened = self.queues.replace(row, old, new)
        self.due.schedule(row)
        self.ages.replace(row, old, new)
        return opened

    def _replace_on_site(self, row: Row, old: RoutedJob | None, new: RoutedJob | None) -> None:
        shelf = row.shelf
        if old is None and new is not None:
            shelf.rows[new.key.job_id] = row
        if wants_seal(new):
            shelf.awaiting[row] = None
        else:
            shelf.awaiting.pop(row, None)
        if new is not None and new.result is not None:
            shelf.finished[row] = None
            shelf.result_bytes += len(new.result.ciphertext)
        if old is not None and old.result is not None:
            # A finished job does not change, it is only forgotten.
            del shelf.finished[row]
            shelf.result_bytes -= len(old.result.ciphertext)
        if new is None and old is not None:
            del shelf.rows[old.key.job_id]
            if not shelf.rows:
                del self._sites[shelf.site_id]

    def _replace_claim(self, row: Row, old: RoutedJob | None, new: RoutedJob | None) -> None:
        before = None if old is None else old.claim
        after = None if new is None else new.claim
        if old is not None and before is not None and after is None:
            self._drop_claim(row, before, old.key.job_id)
        elif new is not None and before is None and after is not None:
            self._add_claim(row, after, new.key.job_id)
        elif new is not None and after is not None and new.state is JobState.DONE:
            self._runners[after.runner_id].held.pop(row, None)

    def _add_claim(self, row: Row, claim: Claim, job_id: str) -> None:
        self._leases[claim.lease_id] = row
        shelf = self._runners.get(claim.runner_id)
        if shelf is None:
            shelf = self._runners[claim.runner_id] = RunnerShelf()
        shelf.held[row] = None
        shelf.rows.setdefault(job_id, []).append(row)

    def _drop_claim(self, row: Row, claim: Claim, job_id: str) -> None:
        del self._leases[claim.lease_id]
        shelf = self._runners[claim.runner_id]
        shelf.held.pop(row, None)
        shelf.rows[job_id].remove(row)
        if not shelf.rows[job_id]:
            del shelf.rows[job_id]
        if not shelf.rows:
            del self._runners[claim.runner_id]


def _is_known(row: Row) -> bool:
    """Whether the holder has heard of its grant."""
    return row.known.state is not JobState.AUTHORISING
