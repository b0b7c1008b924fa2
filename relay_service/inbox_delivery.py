"""Sends the rows of sites' inboxes to their streams until each is settled.

A row goes to one stream of its site. It is sent again when that stream is lost, and when
it is still unsettled after the redelivery time. What is remembered here is only what was
sent to live streams; the inbox itself is the store's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from relay_service.core.limits import INLINE_BODY_BYTES
from relay_service.core.model import JobState, Notice, NoticeKind, RoutedJob
from relay_service.planes.notices import notice_to_proto
from relay_service.sessions.site_session import SiteSession
from relay_service.store.base import RoutingStore
from service_common.clocks import Clock
from service_common.sessions.registry import SessionRegistry

_PAGE = 256
_ALL = frozenset(NoticeKind)
_ENDS = frozenset({NoticeKind.RESULT_READY, NoticeKind.JOB_ENDED})


@dataclass(frozen=True, slots=True)
class _Sent:
    sequence: int
    notice_id: str
    job_id: str
    kind: NoticeKind
    session_id: str
    at: float
    attempt: int


@dataclass(slots=True)
class _Site:
    """What one site was sent, oldest first, and of that what has to be sent again."""

    cursor: int = 0
    sent: dict[str, _Sent] = field(default_factory=dict)
    of_job: dict[str, set[str]] = field(default_factory=dict)
    again: list[_Sent] = field(default_factory=list)

    def add(self, sent: _Sent) -> None:
        # A row withdraws earlier ones of its job; those are not worth asking the store about.
        over = _ALL if sent.kind in _ENDS else frozenset({sent.kind, NoticeKind.PLEASE_SEAL})
        self.forget_job(sent.job_id, over, sent.sequence)
        self.sent[sent.notice_id] = sent
        self.of_job.setdefault(sent.job_id, set()).add(sent.notice_id)

    def forget(self, notice_id: str) -> None:
        sent = self.sent.pop(notice_id, None)
        if sent is not None:
            notices = self.of_job[sent.job_id]
            notices.discard(notice_id)
            if not notices:
                del self.of_job[sent.job_id]

    def forget_job(self, job_id: str, kinds: frozenset[NoticeKind], before: int | None = None) -> None:
        for notice_id in tuple(self.of_job.get(job_id, ())):
            sent = self.sent[notice_id]
            if sent.kind in kinds and (before is None or sent.sequence < before):
                self.forget(notice_id)

    def send_again(self, rows: Iterable[_Sent]) -> None:
        for sent in tuple(rows):
            self.forget(sent.notice_id)
            self.again.append(sent)


class InboxDelivery:
    """One per process.

    `deliver` is for one task alone; the other methods only note what it has to do.

    Args:
        redelivery_ms: a row that is unsettled this long after it was sent is sent again.
    """

    def __init__(
        self,
        store: RoutingStore,
        sessions: SessionRegistry[SiteSession],
        clock: Clock,
        *,
        redelivery_ms: int = 30_000,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._clock = clock
        self._redelivery_seconds = redelivery_ms / 1000
        self._sites: dict[str, _Site] = {}
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}

    async def deliver(self, site_id: str) -> None:
        """Sends what the site has not been sent, as far as its streams have credit."""
        for waiter in self._waiters.pop(site_id, ()):
            _end_wait(waiter)
        if self._free(site_id) <= 0:
            return
        site = self._sites.setdefault(site_id, _Site())
        if await self._deliver_again(site_id, site):
            await self._deliver_new(site_id, site)

    def connected(self) -> set[str]:
        """The sites that have a stream."""
        return {session.site_id for session in self._sessions}

    def settled(self, site_id: str, job_ids: Iterable[str], notice_ids: Iterable[str]) -> None:
        """Forgets rows that the site has settled by job id or by notice id."""
        site = self._sites.get(site_id)
        if site is not None:
            for notice_id in notice_ids:
                site.forget(notice_id)
            for job_id in job_ids:
                site.forget_job(job_id, _ALL)

    def sealed(self, site_id: str, job_id: str) -> None:
        """Forgets the request to seal, which has been met."""
        site = self._sites.get(site_id)
        if site is not None:
            site.forget_job(job_id, frozenset({NoticeKind.PLEASE_SEAL}))

    def lost(self, session: SiteSession) -> None:
        """A stream is gone: what it was sent and did not settle goes to another."""
        site = self._sites.get(session.site_id)
        if site is None:
            return
        if not self._sessions.of(session.site_id):
            del self._sites[session.site_id]
            return
        site.send_again(sent for sent in site.sent.values() if sent.session_id == session.session_id)

    def overdue(self) -> list[str]:
        """The sites to deliver to, because they left rows unsettled for the redelivery time."""
        before = self._clock.monotonic() - self._redelivery_seconds
        for site in self._sites.values():
            late: list[_Sent] = []
            for sent in site.sent.values():
                if sent.at > before:
                    break
                late.append(sent)
            site.send_again(late)
        return [site_id for site_id, site in self._sites.items() if site.again]

    async def wait(self, site_id: str, seconds: float, unless: Callable[[], Awaitable[bool]]) -> None:
        """Returns when the site's inbox gets a row, or after that time.

        Args:
            unless: asked when rows from now on are noticed; True ends the wait at once.
        """
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(site_id, set()).add(waiter)
        timer = self._clock.call_later(seconds, lambda: _end_wait(waiter))
        try:
            if not await unless():
                await waiter
        finally:
            timer.cancel()
            waiters = self._waiters.get(site_id)
            if waiters is not None:
                waiters.discard(waiter)
                if not waiters:
                    del self._waiters[site_id]

    async def _deliver_again(self, site_id: str, site: _Site) -> bool:
        """Sends the rows of `again` that are still unsettled; False when the streams took no more."""
        while site.again:
            batch, site.again = sorted(site.again, key=lambda sent: sent.sequence, reverse=True), []
            try:
                while batch:
                    if not await self._deliver_page_again(site_id, site, batch):
                        return False
            finally:
                site.again += batch
        return True

    async def _deliver_page_again(self, site_id: str, site: _Site, batch: list[_Sent]) -> bool:
        """Works off the end of `batch`, as far as one page of the inbox reaches."""
        rows = await self._store.notices(site_id, batch[-1].sequence - 1, _PAGE)
        unsettled = {row.notice_id: row for row in rows}
        full = len(rows) == _PAGE
        while batch and not (full and batch[-1].sequence > rows[-1].sequence):
            row = unsettled.get(batch[-1].notice_id)
            if row is not None and not await self._send(site, row, batch[-1].attempt + 1):
                return False
            batch.pop()
        return True

    async def _deliver_new(self, site_id: str, site: _Site) -> None:
        while True:
            limit = min(self._free(site_id), _PAGE)
            if limit <= 0:
                return
            rows = await self._store.notices(site_id, site.cursor, limit)
            for row in rows:
                if not await self._send(site, row, 1):
                    return
                site.cursor = row.sequence
            if len(rows) < limit:
                return

    async def _send(self, site: _Site, row: Notice, attempt: int) -> bool:
        session = self._session_for(row)
        if session is None:
            return False
        inline = await self._inline(row) if session.inline_result else None
        message = notice_to_proto(row, await self._store.now(), attempt, inline)
        if not session.push_notice(message):
            return False
        site.add(
            _Sent(
                row.sequence,
                row.notice_id,
                row.key.job_id,
                row.kind,
                session.session_id,
                self._clock.monotonic(),
                attempt,
            )
        )
        return True

    def _free(self, site_id: str) -> int:
        return sum(session.free for session in self._sessions.of(site_id))

    def _session_for(self, row: Notice) -> SiteSession | None:
        """The stream that published the job, or the one with the most credit.

        One whose lane is full is asked last: it would drop the row and ask for a resync.
        """
        ready = [session for session in self._sessions.of(row.key.site_id) if session.free > 0]
        if len(ready) < 2:
            return ready[0] if ready else None
        job_id = row.key.job_id
        return max(
            ready,
            key=lambda session: (session.outbound.notice_room > 0, job_id in session.published, session.free),
        )

    async def _inline(self, row: Notice) -> RoutedJob | None:
        if row.kind is not NoticeKind.RESULT_READY or row.result_bytes > INLINE_BODY_BYTES:
            return None
        job = await self._store.job(row.key.site_id, row.key.job_id)
        return job if job is not None and job.state is JobState.DONE else None


def _end_wait(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
