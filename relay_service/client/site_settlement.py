"""Telling the relay what it may forget."""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from relay_service.client.calls import ACK_RESULTS
from relay_service.client.dual_calls import DualCalls
from relay_service.client.errors import RelayError
from sealwork.relay.v1 import site_plane_pb2

logger = logging.getLogger("sealwork.client")

_IDS_PER_CALL: Final = 400


class Settlement:
    """Collects what is to be settled and sends it in as few calls as may be.

    What is lost on the way is told again when the relay sends the notice again.
    """

    def __init__(self, calls: DualCalls) -> None:
        """Send by these calls."""
        self._calls = calls
        self._job_ids: list[str] = []
        self._publishing: Counter[str] = Counter()
        self._held_back: set[str] = set()
        self._notice_ids: list[str] = []
        self._scheduled = False
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, *, job_id: str | None = None, notice_id: str | None = None) -> None:
        """Settle a job or a notice, together with whatever else is settled in this pass of the event loop."""
        self._idle.clear()
        if job_id is not None and job_id in self._publishing:
            self._held_back.add(job_id)
        elif job_id is not None:
            self._job_ids.append(job_id)
        if notice_id is not None:
            self._notice_ids.append(notice_id)
        if (self._job_ids or self._notice_ids) and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._send)

    @contextmanager
    def publishing(self, job_ids: Collection[str]) -> Iterator[None]:
        """Hold back the settlement of these jobs while they are published, once more perhaps.

        A relay that has forgotten a job takes it for a new one when an enqueue comes late, and it would run a
        second time.
        """
        self._publishing.update(job_ids)
        try:
            yield
        except asyncio.CancelledError:
            # The enqueue may arrive yet, and nobody waits to hear of it: the notice will come again.
            self._held_back.difference_update(job_ids)
            self._look_around()
            raise
        finally:
            self._publishing -= Counter(job_ids)
            for job_id in [each for each in self._held_back if each not in self._publishing]:
                self._held_back.remove(job_id)
                self.add(job_id=job_id)

    async def flush(self) -> None:
        """Return when everything has been told, or could not be."""
        await self._idle.wait()

    def _send(self) -> None:
        self._scheduled = False
        while self._job_ids or self._notice_ids:
            job_ids, self._job_ids = self._job_ids[:_IDS_PER_CALL], self._job_ids[_IDS_PER_CALL:]
            room = _IDS_PER_CALL - len(job_ids)
            notice_ids, self._notice_ids = self._notice_ids[:room], self._notice_ids[room:]
            request = site_plane_pb2.AckResultsRequest(job_ids=job_ids, notice_ids=notice_ids)
            self._under_way += 1
            self._calls.post("ack_results", ACK_RESULTS, request, self._sent)

    def _sent(self, answer: site_plane_pb2.AckResultsResponse | RelayError) -> None:
        self._under_way -= 1
        if isinstance(answer, RelayError):
            logger.warning("the relay could not be told what it may forget: %s", answer)
        self._look_around()

    def _look_around(self) -> None:
        if not self._under_way and not self._scheduled and not self._held_back:
            self._idle.set()
