"""What is known of runners: at which sites they may hold leases, that they were seen, their nonces."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from relay_service.core.model import LeaseRef, Presence
from relay_service.store.valkey_names import nonce_tag, runner_tag, tag_of_lease
from relay_service.store.valkey_records import UnreadableError, presence_from, presence_text
from relay_service.store.valkey_sites import Sites

# A hint lasts days on the server; within this time it is not written again.
_NOTED_SECONDS = 3_600.0
_NOTED_RUNNERS = 16_384


class Runners:
    """Facts in slots of their own: hints, a cache, and nonces. None of them decides about a job."""

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self._functions = sites.functions
        self._noted: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._epoch = 0
        presence = f"{self._functions.prefix}{{presence}}"
        self._presence_keys = (f"{presence}:known", f"{presence}:until")

    async def sites(self, runner_id: str) -> list[str]:
        """Tags of the sites at which the runner may hold leases; rather too many than too few."""
        found = await self._functions.command("ZRANGE", self._key(runner_id), 0, -1)
        return [tag.decode() for tag in found]

    async def note(self, runner_id: str, *tags: str) -> None:
        """The runner is about to hold leases at these sites, or still does."""
        now = asyncio.get_running_loop().time()
        if self._epoch != self._functions.epoch:
            self._epoch = self._functions.epoch
            self._noted.clear()
        news = [tag for tag in tags if self._noted.get((runner_id, tag), 0.0) <= now]
        if not news:
            return
        await self._functions.call("note_runner", (self._key(runner_id),), self._sites.clock_setting(), *news)
        for tag in news:
            self._noted[runner_id, tag] = now + _NOTED_SECONDS
        while len(self._noted) > _NOTED_RUNNERS:
            self._noted.popitem(last=False)

    async def ask_everywhere(self, runner_id: str, name: str, *arguments: str) -> list[Any]:
        """Asks all sites at which the runner may hold leases."""
        tags = await self.sites(runner_id)
        answers = await asyncio.gather(
            *(self._sites.ask_one_of_many(tag, "", name, runner_id, *arguments) for tag in tags)
        )
        return [answer for answer in answers if answer is not None]

    async def seen(self, presence: Presence) -> int:
        """Remembers a device; the instant."""
        setting = self._sites.clock_setting()
        text = presence_text(presence)
        now_ms: int = await self._functions.call(
            "seen", self._presence_keys, setting, presence.runner_id, text
        )
        return now_ms

    async def presence(self, runner_id: str) -> Presence | None:
        setting = self._sites.clock_setting()
        (value,) = await self._functions.call("presence", self._presence_keys, setting, runner_id)
        return self._presence(runner_id, value)

    async def everyone(self) -> list[Presence]:
        setting = self._sites.clock_setting()
        found = await self._functions.call("everyone", self._presence_keys, setting)
        pairs = zip(found[::2], found[1::2], strict=True)
        known = (self._presence(runner.decode(), value) for runner, value in pairs)
        return [presence for presence in known if presence is not None]

    async def use_nonce(self, caller: str, nonce: str, ttl_ms: int) -> bool:
        key = f"{self._functions.prefix}{{{nonce_tag(caller, nonce)}}}:nonce"
        setting = self._sites.clock_setting()
        return bool(await self._functions.call("use_nonce", (key,), setting, ttl_ms))

    def _key(self, runner_id: str) -> str:
        return f"{self._functions.prefix}{{{runner_tag(runner_id)}}}:sites"

    def _presence(self, runner_id: str, value: bytes | None) -> Presence | None:
        if value is None:
            return None
        try:
            return presence_from(runner_id, value)
        except UnreadableError:
            self._sites.note_unreadable("", "")
            return None


def by_site(leases: Sequence[LeaseRef]) -> dict[str, list[int]]:
    """Which of the leases belong to which site, by tag; those of no site are left out."""
    found: dict[str, list[int]] = {}
    for index, lease in enumerate(leases):
        tag = tag_of_lease(lease.lease_id)
        if tag is not None:
            found.setdefault(tag, []).append(index)
    return found
