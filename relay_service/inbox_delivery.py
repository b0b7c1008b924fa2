"""Sends the rows of sites' inboxes to their streams until each is settled.

A row goes to one stream of its site. It is sent again when that stream is lost, and when
it is still unsettled after the redelivery time. What is remembered here is only what was
sent to live streams; the inbox itself is the store's.
"""

import asyncio
from dataclasses import dataclass, field

from relay_service.core.limits import INLINE_BODY_BYTES
from relay_service.core.model import JobState, Notice, NoticeKind, RoutedJob
from relay_service.planes.notices import notice_to_proto
from relay_service.sessions.site_session import SiteSession
from relay_service.store.base import RoutingStore
from service_common.clocks import Clock
from service_common.sessions.registry import SessionRegistry

_PAGE = 256


@dataclass(slots=True)
class _Sent:
    sequence: int
    job_id: str
    session_id: str
    at: float
    attempt: int


@dataclass(slots=True)
class _Site:
    cursor: int = 0
    sent: dict[str, _Sent] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)


class InboxDelivery:
    """One per process.

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
        while True:
            free = sum(session.free for session in self._sessions.of(site_id))
            if free <= 0:
                return
            site = self._sites.setdefault(site_id, _Site())
            limit = min(free, _PAGE)
            rows = await self._store.notices(site_id, site.cursor, limit)
            for row in rows:
                if not await self._send(site, row):
                    return
                site.cursor = row.sequence
            if len(rows) < limit:
                return

    def settled(self, site_id: str, ids: list[str]) -> None:
        """Forgets rows that the site has settled by job id or by notice id."""
        site = self._sites.get(site_id)
        if site is None:
            return
        gone = set(ids)
        for notice_id in [key for key in ids if key in site.sent]:
            del site.sent[notice_id]
        # Job ids are the common case, and a site has few rows under way at a time.
        for notice_id in [key for key, sent in site.sent.items() if sent.job_id in gone]:
            del site.sent[notice_id]

    def lost(self, session: SiteSession) -> None:
        """A stream is gone: what it was sent and did not settle goes to another."""
        site = self._sites.get(session.site_id)
        if site is None:
            return
        if not self._sessions.of(session.site_id):
            del self._sites[session.site_id]
            return
        for notice_id, sent in list(site.sent.items()):
            if sent.session_id == session.session_id:
                self._send_again(site, notice_id, sent)

    async def redeliver(self) -> None:
        """Sends again what is still unsettled after the redelivery time."""
        overdue = self._clock.monotonic() - self._redelivery_seconds
        for site_id, site in list(self._sites.items()):
            if not any(sent.at <= overdue for sent in site.sent.values()):
                continue
            unsettled = await self._unsettled(site_id)
            for notice_id, sent in list(site.sent.items()):
                if notice_id not in unsettled:
                    del site.sent[notice_id]
                elif sent.at <= overdue:
                    self._send_again(site, notice_id, sent)
            await self.deliver(site_id)

    async def wait(self, site_id: str, seconds: float) -> None:
        """Returns when the site's inbox gets a row, or after that time."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(site_id, set()).add(waiter)
        timer = self._clock.call_later(seconds, lambda: _end_wait(waiter))
        try:
            await waiter
        finally:
            timer.cancel()
            waiters = self._waiters.get(site_id)
            if waiters is not None:
                waiters.discard(waiter)
                if not waiters:
                    del self._waiters[site_id]

    async def _send(self, site: _Site, row: Notice) -> bool:
        if row.notice_id in site.sent:
            return True
        session = self._session_for(row)
        if session is None:
            return False
        attempt = site.attempts.pop(row.notice_id, 0) + 1
        inline = await self._inline(row) if session.inline_result else None
        message = notice_to_proto(row, await self._store.now(), attempt, inline)
        if not session.push_notice(message):
            return False
        site.sent[row.notice_id] = _Sent(
            row.sequence, row.key.job_id, session.session_id, self._clock.monotonic(), attempt
        )
        return True

    def _session_for(self, row: Notice) -> SiteSession | None:
        """The stream with the most credit, so that load spreads over a site's processes."""
        sessions = self._sessions.of(row.key.site_id)
        best = max(sessions, key=lambda session: session.free, default=None)
        return best if best is not None and best.free > 0 else None

    async def _inline(self, row: Notice) -> RoutedJob | None:
        if row.kind is not NoticeKind.RESULT_READY or row.result_bytes > INLINE_BODY_BYTES:
            return None
        job = await self._store.job(row.key.site_id, row.key.job_id)
        return job if job is not None and job.state is JobState.DONE else None

    async def _unsettled(self, site_id: str) -> set[str]:
        found: set[str] = set()
        after = 0
        while True:
            rows = await self._store.notices(site_id, after, _PAGE)
            found.update(row.notice_id for row in rows)
            if len(rows) < _PAGE:
                return found
            after = rows[-1].sequence

    def _send_again(self, site: _Site, notice_id: str, sent: _Sent) -> None:
        del site.sent[notice_id]
        site.attempts[notice_id] = sent.attempt
        site.cursor = min(site.cursor, sent.sequence - 1)


def _end_wait(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
