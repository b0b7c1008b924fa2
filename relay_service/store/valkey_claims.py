"""Claims: fair between the routes of several sites, atomic at each."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any

import orjson

from relay_service.core.model import GrantedJob
from relay_service.store.base import ClaimRequest
from relay_service.store.valkey_names import lease_id, site_tag
from relay_service.store.valkey_records import (
    Record,
    UnreadableError,
    device_text,
    grant_number,
    granted_from,
    read,
)
from relay_service.store.valkey_runners import Runners
from relay_service.store.valkey_sites import ScriptError, Sites

_logger = logging.getLogger(__name__)

Numbered = tuple[int, GrantedJob]


@dataclass(slots=True)
class Round:
    """What one claim knows of the sites that it goes round.

    Attributes:
        held: jobs that the runner holds, by the tag of their site.
        waiting: sites with something for it, the one longest unserved first; 0 for not asked yet.
        visited: sites that this claim was granted something at.
    """

    owners: dict[str, list[str]]
    site_ids: dict[str, str]
    held: dict[str, int] = field(default_factory=dict)
    waiting: list[tuple[int, str]] = field(default_factory=list)
    visited: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Reply:
    """A site's reply to a claim; `turn` is that of the next route that could be served."""

    answered: list[Numbered]
    granted: list[Numbered]
    held: int
    turn: int | None


class Claims:
    """Grants jobs to runners.

    A route's turn is an instant, so the turns of different sites can be compared: a claim asks the
    sites whose turn it is and takes from the one longest unserved, as far as the next one's turn.
    Each taking is atomic at its site. Two claims of one runner at the same time, at different
    sites, may together exceed the number of leases that a device may hold.

    Attributes:
        inspected: routes, lanes and jobs that claims have looked at so far.
    """

    def __init__(
        self, sites: Sites, runners: Runners, new_secret: Callable[[], str], leases_per_device: int
    ) -> None:
        self.inspected = 0
        self._sites = sites
        self._runners = runners
        self._new_secret = new_secret
        self._leases_per_device = leases_per_device

    async def claim(self, request: ClaimRequest) -> Sequence[GrantedJob]:
        """As the store's `claim`."""
        tour = _round(request)
        answered = await self._ask_around(request, tour)
        if answered:
            return _in_order(answered)
        granted: list[GrantedJob] = []
        while tour.waiting and len(granted) < request.maximum:
            _, tag = heappop(tour.waiting)
            others = sum(tour.held.values()) - tour.held.get(tag, 0)
            room = min(request.maximum - len(granted), self._leases_per_device - others)
            reply = await self._take(request, tour, tag, room, others)
            granted += _in_order(reply.answered or reply.granted)
            if reply.answered:
                break
            tour.held[tag] = reply.held + len(reply.granted)
            if reply.turn is not None:
                heappush(tour.waiting, (reply.turn, tag))
        return granted

    async def _ask_around(self, request: ClaimRequest, tour: Round) -> list[Numbered]:
        """Finds out whose turn it is, what the runner holds, and whether this claim was answered."""
        alone = len(tour.owners) == 1 and request.maximum > 0
        asked = [] if alone else list(tour.owners)
        tags, replies = await asyncio.gather(
            self._runners.sites(request.runner_id),
            asyncio.gather(*(self._peek(request, tour, tag) for tag in asked)),
        )
        others = sorted(set(tags) - tour.owners.keys())
        if alone and others and request.request_id is not None:
            # An earlier answer may have come from this site and from others together.
            others += tour.owners
        replies += await asyncio.gather(*(self._peek(request, tour, tag) for tag in others))
        for tag, reply in zip(asked + others, replies, strict=True):
            tour.held[tag] = reply.held
            if reply.turn is not None:
                tour.waiting.append((reply.turn, tag))
        if alone:
            # The taking itself answers all of this at once.
            tour.waiting = [(0, tag) for tag in tour.owners]
        heapify(tour.waiting)
        return [numbered for reply in replies for numbered in reply.answered]

    async def _peek(self, request: ClaimRequest, tour: Round, tag: str) -> Reply:
        return await self._ask(request, tour, tag, (), 0)

    async def _take(self, request: ClaimRequest, tour: Round, tag: str, room: int, others: int) -> Reply:
        if room <= 0:
            return Reply([], [], tour.held.get(tag, 0), None)
        # First the hint and then the grant: a crash in between leaves a hint too many.
        await self._runners.note(request.runner_id, tag)
        secrets = [lease_id(tag, self._new_secret()) for _ in range(room)]
        reply = await self._ask(request, tour, tag, secrets, others)
        tour.visited.add(tag)
        return reply

    async def _ask(
        self, request: ClaimRequest, tour: Round, tag: str, lease_ids: Sequence[str], others: int
    ) -> Reply:
        may_repeat = request.request_id is not None and tag not in tour.visited
        claimant = (request.runner_id, request.owner, device_text(request.device), request.device.key_id)
        flags = ("1" if may_repeat else "", "1" if request.authorise else "")
        terms = (request.lease_ms, request.request_id or "", *flags)
        before_turn = tour.waiting[0][0] if lease_ids and tour.waiting else ""
        lists = map(orjson.dumps, (tour.owners.get(tag, []), list(request.kinds), lease_ids))
        try:
            answer = await self._sites.ask_tag(tag, "claim", *claimant, *terms, before_turn, others, *lists)
        except ScriptError as error:
            # One site's broken keys are no reason to keep the others' work from the device.
            _logger.error("a site cannot be claimed from: %s", error)
            self._sites.note_unreadable(tour.site_ids.get(tag, ""), "")
            return Reply([], [], 0, None)
        return self._reply(answer)

    def _reply(self, answer: Any) -> Reply:
        site_id, answered, granted, held, turn, inspected = answer
        self.inspected += inspected
        return Reply(
            self._granted(site_id.decode(), answered),
            self._granted(site_id.decode(), granted),
            held,
            None if turn is None else int(turn),
        )

    def _granted(self, site_id: str, texts: Iterable[bytes]) -> list[Numbered]:
        found: list[Numbered] = []
        for text in texts:
            try:
                record: Record = read(text)
                found.append((grant_number(record), granted_from(site_id, record)))
            except (UnreadableError, LookupError, ValueError):
                self._sites.note_unreadable(site_id, "")
        return found


def _round(request: ClaimRequest) -> Round:
    owners: dict[str, list[str]] = {}
    site_ids: dict[str, str] = {}
    for route in sorted(request.routes, key=lambda route: (route.site_id, route.owner)):
        tag = site_tag(route.site_id)
        owners.setdefault(tag, []).append(route.owner)
        site_ids[tag] = route.site_id
    return Round(owners, site_ids)


def _in_order(numbered: Iterable[Numbered]) -> list[GrantedJob]:
    return [granted for _, granted in sorted(numbered, key=lambda entry: entry[0])]
