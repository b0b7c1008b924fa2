"""What an operator asks of all sites together."""

import asyncio
from typing import Any

from relay_service.core.churn import newest_first
from relay_service.core.limits import CHURN_WINDOW_MS
from relay_service.core.model import ChurnReport, Route
from relay_service.store.valkey_names import site_tag
from relay_service.store.valkey_sites import Sites

_SITES_AT_A_TIME = 200


class Overviews:
    """The operations of `RoutingStore` that go over every site; see there. No job costs them anything."""

    def __init__(self, sites: Sites) -> None:
        self._sites = sites

    async def oldest_queued_ms(self) -> int | None:
        answers = [first for _, (first,) in await self._ask_all("oldest_queued")]
        return min((int(float(first)) for first in answers if first is not None), default=None)

    async def churn_reports(self) -> list[ChurnReport]:
        reports: list[ChurnReport] = []
        for site_id, texts in await self._ask_all("churn_reports"):
            for text in texts:
                try:
                    at_ms, expiries, owner = text.decode().split(" ", 2)
                    route = Route(site_id, owner)
                    reports.append(ChurnReport(route, int(expiries), CHURN_WINDOW_MS, int(at_ms)))
                except ValueError:
                    self._sites.note_unreadable(site_id, "")
        return newest_first(reports)

    async def _ask_all(self, name: str) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []
        site_ids = await self._sites.everywhere()
        for start in range(0, len(site_ids), _SITES_AT_A_TIME):
            some = site_ids[start : start + _SITES_AT_A_TIME]
            answers = await asyncio.gather(
                *(self._sites.ask_one_of_many(site_tag(site_id), site_id, name) for site_id in some)
            )
            found += zip(some, answers, strict=True)
        return [(site_id, answer) for site_id, answer in found if answer is not None]
