"""Reading jobs and inboxes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from relay_service.core.model import Notice, RoutedJob
from relay_service.store.base import StoreUnavailable
from relay_service.store.valkey_envelopes import ChangedError, Envelopes
from relay_service.store.valkey_names import site_tag
from relay_service.store.valkey_records import UnreadableError, notice_from
from relay_service.store.valkey_sites import ScriptError, Sites

_JOBS_A_PAGE = 100
_ROWS_A_PAGE = 500
_ATTEMPTS = 5


class Readers:
    """The operations of `RoutingStore` that read; see there. What cannot be read is left out."""

    def __init__(self, sites: Sites, envelopes: Envelopes) -> None:
        self._sites = sites
        self._envelopes = envelopes

    async def job(self, site_id: str, job_id: str) -> RoutedJob | None:
        for _ in range(_ATTEMPTS):
            answers = await self._sites.ask(site_id, "job", job_id)
            try:
                return await self._envelopes.job(site_id, answers[0]) if answers else None
            except ChangedError:
                continue
            except UnreadableError:
                self._sites.note_unreadable(site_id, job_id)
                return None
        raise StoreUnavailable("the job changes too fast to be read")

    async def answered(self, site_id: str, job_id: str, answer: Any) -> RoutedJob:
        """The job that an operation answered with.

        Raises:
            StoreUnavailable: the server cannot be asked, or what it keeps cannot be read.
        """
        try:
            return await self._envelopes.job(site_id, answer)
        except ChangedError:
            job = await self.job(site_id, job_id)
        except UnreadableError:
            self._sites.note_unreadable(site_id, job_id)
            job = None
        if job is None:
            raise StoreUnavailable("the job cannot be read at present")
        return job

    async def index(self, site_id: str, name: str) -> list[RoutedJob]:
        """The jobs of an index of a site, `awaiting` or `finished`, in its order."""
        jobs: list[RoutedJob] = []
        after: bytes | None = b"-inf"
        while after is not None:
            answers, after = await self._sites.ask(site_id, "list", name, after, _JOBS_A_PAGE)
            found = await asyncio.gather(*(self._listed(site_id, answer) for answer in answers))
            jobs += [job for job in found if job is not None]
        return jobs

    async def jobs(self) -> list[RoutedJob]:
        """Every job, site by site; for operators only, and not one instant of all of them."""
        jobs: list[RoutedJob] = []
        for site_id in await self._sites.everywhere():
            try:
                jobs += [job async for job in self._all(site_id)]
            except ScriptError:
                self._sites.note_unreadable(site_id, "")
        return jobs

    async def notices(self, site_id: str, after: int, limit: int) -> list[Notice]:
        notices: list[Notice] = []
        position: bytes | None = str(after).encode()
        while position is not None and len(notices) < limit:
            page = min(_ROWS_A_PAGE, limit - len(notices))
            rows, position = await self._sites.ask(site_id, "notices", position, page)
            for row in rows:
                try:
                    notices.append(notice_from(site_id, *row))
                except UnreadableError:
                    self._sites.note_unreadable(site_id, row[2].decode(errors="replace"))
        return notices

    async def _listed(self, site_id: str, answer: Any) -> RoutedJob | None:
        """A job of a list; None when it has gone on since, or cannot be read."""
        try:
            return await self._envelopes.job(site_id, answer)
        except ChangedError:
            return None
        except UnreadableError:
            self._sites.note_unreadable(site_id, "")
            return None

    async def _all(self, site_id: str) -> AsyncIterator[RoutedJob]:
        functions = self._sites.functions
        key = f"{self._sites.base(site_tag(site_id))}jobs"
        cursor, first = b"0", True
        while first or cursor != b"0":
            first = False
            cursor, found = await functions.command("HSCAN", key, cursor, "COUNT", _JOBS_A_PAGE)
            texts = found[1::2]
            listed = await asyncio.gather(*(self._listed(site_id, (text, None, None)) for text in texts))
            for job in listed:
                if job is not None:
                    yield job
