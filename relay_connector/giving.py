"""Giving the prompt away: written down before it leaves, and, unless that is allowed, given once."""

import asyncio
from typing import Final

from durable_service.client.records import Records
from relay_service.client.site import HandOver
from service_common.clocks import Clock

DAY_MS: Final = 86_400_000

_NAME: Final = "relay-prompt-given:"


class Giving:
    """Decides, for one dispatch, whether the prompt may leave this process.

    The prompt is nowhere but in the worker that dispatches the action, and here is the one way out. Before it
    leaves for a device, that is written down under the task's lease. So whoever holds the lease later knows:
    where nothing is written the prompt has not left, and cannot leave any more, since the write of a worker
    that has lost its lease is refused.

    Attributes:
        given: The prompt may have left.
        given_up: Set when the relay asks for it again: the first device has it no longer, and its answer will
            not be taken any more.
    """

    def __init__(self, records: Records, job_id: str, *, keep_ms: int, again: bool, clock: Clock) -> None:
        """Prepare for a dispatch.

        Args:
            records: Of the task.
            job_id: Its job at the relay.
            keep_ms: For how long it is to be known that the prompt was given.
            again: It may be given to another device when the first one is gone.
            clock: Tells how long the relay waits.
        """
        self.given = False
        self.given_up = asyncio.Event()
        self._records = records
        self._name = _NAME + job_id
        self._keep_ms = keep_ms
        self._again = again
        self._clock = clock
        self._lease_id = ""
        self._newest_lease_id = ""
        self._closed = False
        self._turn = asyncio.Lock()

    async def admit(self, hand_over: HandOver) -> bool:
        """Answer the site, which has the payload sealed; whatever is raised here keeps it from leaving."""
        asked_at = self._clock.monotonic()
        self._newest_lease_id = hand_over.lease_id
        # One at a time: writing may take longer than the relay waits, and then it asks for another grant.
        async with self._turn:
            if not self._may_leave_for(hand_over.lease_id):
                return False
            await self._records.checkpoint(self._name, {"given": True}, ttl_ms=self._keep_ms)
            waited = self._clock.monotonic() - asked_at
            if not self._is_awaited(hand_over) or waited >= hand_over.seconds > 0:
                # The relay would refuse it, and it is better to know that it never left.
                return False
            self.given, self._lease_id = True, hand_over.lease_id
            return True

    def close(self) -> None:
        """Let nothing leave from now on."""
        self._closed = True

    def _may_leave_for(self, lease_id: str) -> bool:
        if self._closed:
            return False
        if not self.given or self._again or lease_id == self._lease_id:
            return True
        self.given_up.set()
        return False

    def _is_awaited(self, hand_over: HandOver) -> bool:
        return not self._closed and self._newest_lease_id == hand_over.lease_id


async def was_given(records: Records, job_id: str) -> bool:
    """Tell whether the prompt may have left, as whoever holds the lease now finds it written.

    Raises:
        DurableError: The service refused.
    """
    return await records.snapshot(_NAME + job_id) is not None
