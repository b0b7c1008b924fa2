"""A device without a stream: it asks for work by unary calls until there is a stream again."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from relay_service.client.calls import CLAIM_JOBS, GET_SITES, Calls
from relay_service.client.daemon_desk import JobDesk
from relay_service.client.errors import RelayError
from relay_service.client.wire import capability_to_proto
from relay_service.core.model import Capability
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from service_common.clocks import Clock
from service_common.deadlines import within
from service_common.session_client import FINAL_REASONS

logger = logging.getLogger("sealwork.client")

BEAT_SECONDS: Final = 10.0
RUNGS: Final = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Shares of a beat: a device that has just had work asks again soon, and then less and less often."""

# A stream that is lost is usually back before that.
_STREAMLESS_SECONDS: Final = 5.0
_DIRECTORY_SECONDS: Final = 60.0
_JOBS_PER_CLAIM: Final = 64


class Polling:
    """Claims, renews and reads the directory while nothing can be pushed.

    Something on the way may let calls through and no streams. That is slower, and works.
    """

    def __init__(  # noqa: PLR0913 - parts, all of them named
        self,
        calls: Calls,
        desk: JobDesk,
        renew: Callable[[Sequence[job_pb2.LeaseRef]], None],
        *,
        matrix: Callable[[], Sequence[Capability]],
        free_slots: Callable[[], int],
        has_stream: Callable[[], bool],
        on_refused: Callable[[RelayError], None],
        clock: Clock,
        random: Random,
    ) -> None:
        """Prepare.

        Args:
            calls: The relay, without a stream.
            desk: Takes the grants.
            renew: Renews these leases in the background.
            matrix: Returns what the device offers.
            free_slots: Returns how many more jobs it would take.
            has_stream: Tells whether there is a stream.
            on_refused: The relay will not have this device any more.
            clock: Times everything.
            random: Jitter.
        """
        self._calls = calls
        self._desk = desk
        self._renew = renew
        self._matrix = matrix
        self._free_slots = free_slots
        self._has_stream = has_stream
        self._on_refused = on_refused
        self._clock = clock
        self._random = random
        self._request_id = ""
        self._directory_at = float("-inf")
        self._slot_free = asyncio.Event()

    async def run(self) -> None:
        """Stand in for the stream whenever there is none, for ever."""
        pause = _STREAMLESS_SECONDS
        while True:
            await self._clock.sleep(pause)
            pause = _STREAMLESS_SECONDS
            if not self._has_stream():
                await self._clock.sleep(_STREAMLESS_SECONDS / 2)
            if not self._has_stream():
                logger.warning("there is no stream to the relay; asking for work by calls")
                try:
                    await self._poll()
                except RelayError as error:
                    self._on_refused(error)
                    return
                logger.info("there is a stream to the relay again")
                # What cuts one stream off may cut off the next as fast.
                pause = 1.0

    def wake(self) -> None:
        """Ask at once: a slot has become free."""
        self._slot_free.set()

    async def _poll(self) -> None:
        """Raise `RelayError` for a refusal that another try cannot change."""
        rung = 0
        while not self._has_stream():
            try:
                won = await self._tick()
            except RelayError as error:
                if error.reason in FINAL_REASONS:
                    raise
                logger.info("the relay could not be asked for work: %s", error)
                await self._sleep(max(BEAT_SECONDS, (error.retry_after_ms or 0) / 1000))
                continue
            rung = 0 if won else min(rung + 1, len(RUNGS) - 1)
            await self._sleep(pause_at(rung, self._random))

    async def _tick(self) -> int:
        """Do what a stream would have done by itself; returns how many jobs were won."""
        self._renew(self._desk.leases())
        if self._clock.monotonic() - self._directory_at >= _DIRECTORY_SECONDS:
            self._directory_at = self._clock.monotonic()
            answer = await self._calls.call(GET_SITES, daemon_plane_pb2.GetSitesRequest(), attempts=1)
            self._desk.sites_changed(answer.directory)
        won = await self._claim()
        self._desk.seek_payloads()
        return won

    async def _claim(self) -> int:
        self._slot_free.clear()
        slots, matrix = min(self._free_slots(), _JOBS_PER_CLAIM), self._matrix()
        if not slots or not matrix:
            return 0
        # Kept until it is answered: what an answer that was lost has granted is granted again, not on top.
        self._request_id = self._request_id or uuid.uuid4().hex
        request = daemon_plane_pb2.ClaimJobsRequest(
            request_id=self._request_id, matrix=map(capability_to_proto, matrix), max_jobs=slots
        )
        asked_at = self._clock.monotonic()
        answer = await self._calls.call(CLAIM_JOBS, request, attempts=1)
        self._request_id = ""
        for granted in answer.granted:
            self._desk.granted(granted, asked_at)
        return len(answer.granted)

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await within(self._clock, seconds, _set(self._slot_free))


def pause_at(rung: int, random: Random) -> float:
    """Return how long to wait on a rung, in seconds: never quite as long as another device."""
    share = RUNGS[rung]
    if share < 1:
        return share * BEAT_SECONDS + random.uniform(0.2, 0.5)
    return BEAT_SECONDS * random.uniform(0.85, 1.15)


async def _set(event: asyncio.Event) -> None:
    await event.wait()
