"""Giving leases back."""

import asyncio
import logging
from typing import Final, TypeAlias

from relay_service.client.calls import RELEASE_LEASES
from relay_service.client.dual_calls import DualCalls
from relay_service.client.errors import RelayError
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2

logger = logging.getLogger("sealwork.client")

Reason: TypeAlias = daemon_plane_pb2.ReleaseReason.ValueType

_LEASES_PER_CALL: Final = 100


class Releases:
    """Collects what is given back and sends it in as few calls as may be.

    What is lost on the way lapses by itself.
    """

    def __init__(self, calls: DualCalls) -> None:
        """Send by these calls."""
        self._calls = calls
        self._waiting: dict[Reason, list[job_pb2.LeaseRef]] = {}
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, lease: job_pb2.LeaseRef, reason: Reason) -> None:
        """Give a lease back, together with what else is given back in this pass of the event loop."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._send)
        self._waiting.setdefault(reason, []).append(lease)
        self._idle.clear()

    async def flush(self) -> None:
        """Return when everything has been told, or could not be."""
        await self._idle.wait()

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for reason, leases in waiting.items():
            for start in range(0, len(leases), _LEASES_PER_CALL):
                part = leases[start : start + _LEASES_PER_CALL]
                request = daemon_plane_pb2.ReleaseLeasesRequest(leases=part, reason=reason)
                self._under_way += 1
                self._calls.post("release_leases", RELEASE_LEASES, request, self._sent)

    def _sent(self, answer: daemon_plane_pb2.ReleaseLeasesResponse | RelayError) -> None:
        self._under_way -= 1
        if isinstance(answer, RelayError):
            logger.info("leases could not be given back, and will lapse: %s", answer)
        if not self._under_way and not self._waiting:
            self._idle.set()
