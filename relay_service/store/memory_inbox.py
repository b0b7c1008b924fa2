"""The inboxes of the sites, in memory."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence

from relay_service.core import inbox
from relay_service.core.inbox import JobRows, NoticeDraft, Place
from relay_service.core.limits import RESULT_RETENTION_MS
from relay_service.core.model import JobKey, Notice, NoticeKind

_SPARE_ENTRIES = 64
_NO_ROWS = JobRows()
# A new inbox counts from the clock, this many rows a millisecond: a cursor that a site kept
# over a restart of the store lies before every new row.
_ROWS_PER_MS = 1_000


class SiteInbox:
    """Unsettled rows of one site: by place, by notice id, by job.

    Attributes:
        ended: jobs with a row that says that they ended, in order.
    """

    def __init__(self, now_ms: int) -> None:
        self.ended: OrderedDict[JobKey, None] = OrderedDict()
        self._last_sequence = now_ms * _ROWS_PER_MS
        self._rows: dict[int, Notice] = {}
        # Places in order, settled ones among them until there are too many.
        self._places: list[int] = []
        self._by_id: dict[str, Notice] = {}
        self._by_job: dict[str, JobRows] = {}

    def rows(self, job_id: str) -> JobRows:
        return self._by_job.get(job_id, _NO_ROWS)

    def named(self, notice_id: str) -> Notice | None:
        return self._by_id.get(notice_id)

    def next_place(self, now_ms: int) -> Place:
        self._last_sequence += 1
        return Place(str(self._last_sequence), self._last_sequence, now_ms)

    def replace(self, job_id: str, new: JobRows) -> None:
        """Puts a job's rows in place of those it had."""
        old = self.rows(job_id)
        if old.outlook is not new.outlook:
            self._swap(old.outlook, new.outlook)
        if old.requeued is not new.requeued:
            self._swap(old.requeued, new.requeued)
        if new.outlook is None and new.requeued is None:
            self._by_job.pop(job_id, None)
        else:
            self._by_job[job_id] = new

    def page(self, after: int, limit: int) -> Sequence[Notice]:
        page: list[Notice] = []
        for place in range(bisect_right(self._places, after), len(self._places)):
            if len(page) >= limit:
                break
            row = self._rows.get(self._places[place])
            if row is not None:
                page.append(row)
        return page

    def _swap(self, old: Notice | None, new: Notice | None) -> None:
        if old is not None:
            del self._rows[old.sequence]
            del self._by_id[old.notice_id]
        if new is not None:
            self._rows[new.sequence] = new
            self._by_id[new.notice_id] = new
            self._places.append(new.sequence)
        if len(self._places) > 3 * len(self._rows) + _SPARE_ENTRIES:
            self._places = sorted(self._rows)


class Inboxes:
    """All inboxes, and for how long they say that a job ended."""

    def __init__(self, ended_notices_per_site: int) -> None:
        self._ended_notices_per_site = ended_notices_per_site
        self._sites: dict[str, SiteInbox] = {}
        # When the rows of ended jobs are given up; all rows are kept equally long, so in order.
        self._given_up_at_ms: OrderedDict[JobKey, int] = OrderedDict()

    def post(self, key: JobKey, draft: NoticeDraft, now_ms: int) -> None:
        """Writes a row about a job."""
        site = self._sites.get(key.site_id)
        if site is None:
            site = self._sites[key.site_id] = SiteInbox(now_ms)
        self._replace(site, key, inbox.post(site.rows(key.job_id), draft, key, site.next_place(now_ms)))
        if draft.kind is NoticeKind.JOB_ENDED:
            site.ended[key] = None
            self._given_up_at_ms[key] = now_ms + RESULT_RETENTION_MS
            if len(site.ended) > self._ended_notices_per_site:
                self._replace(site, next(iter(site.ended)), _NO_ROWS)

    def withdraw(self, key: JobKey) -> None:
        """Takes a request to seal back."""
        site = self._sites.get(key.site_id)
        if site is not None:
            self._replace(site, key, inbox.withdraw(site.rows(key.job_id)))

    def clear(self, key: JobKey) -> bool:
        """Settles all rows of a job; False when there are none."""
        site = self._sites.get(key.site_id)
        if site is None or site.rows(key.job_id) is _NO_ROWS:
            return False
        self._replace(site, key, _NO_ROWS)
        return True

    def settle(self, site_id: str, notice_id: str) -> bool:
        """Settles a row that is settled by naming it."""
        site = self._sites.get(site_id)
        notice = None if site is None else site.named(notice_id)
        if site is None or notice is None or not inbox.settles_by_notice_id(notice):
            return False
        rows = site.rows(notice.key.job_id)
        if rows.outlook is notice:
            self._replace(site, notice.key, JobRows(None, rows.requeued))
        else:
            self._replace(site, notice.key, JobRows(rows.outlook, None))
        return True

    def page(self, site_id: str, after: int, limit: int) -> Sequence[Notice]:
        """Rows above a place, in order."""
        site = self._sites.get(site_id)
        return () if site is None else site.page(after, limit)

    def may_be_due(self, now_ms: int) -> bool:
        """Whether a row of an ended job was kept long enough."""
        return bool(self._given_up_at_ms) and next(iter(self._given_up_at_ms.values())) <= now_ms

    def give_up(self, now_ms: int) -> None:
        """Settles the rows of ended jobs that were kept long enough."""
        while self.may_be_due(now_ms):
            self.clear(next(iter(self._given_up_at_ms)))

    def next_due_ms(self) -> int | None:
        return next(iter(self._given_up_at_ms.values()), None)

    def _replace(self, site: SiteInbox, key: JobKey, new: JobRows) -> None:
        outlook = site.rows(key.job_id).outlook
        if outlook is not None and outlook.kind is NoticeKind.JOB_ENDED and new.outlook is not outlook:
            del site.ended[key]
            del self._given_up_at_ms[key]
        site.replace(key.job_id, new)
