"""Delivering results: each is on the disk before it is sent, and until the relay has it or refuses it."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Final

from relay_service.client.calls import COMPLETE_JOB
from relay_service.client.dual_calls import DualCalls
from relay_service.client.errors import RelayError
from relay_service.client.spool import Spool, SpoolError
from relay_service.client.wire import milliseconds_of
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from service_common.clocks import Clock, TimerHandle

logger = logging.getLogger("sealwork.client")

# Answers after which the relay will never take this result.
_FINAL: Final = frozenset(
    {
        "ENVELOPE_EXPIRED",
        "ENVELOPE_MISDIRECTED",
        "ENVELOPE_TOO_LARGE",
        "FIELD_INVALID",
        "JOB_FINISHED",
        "JOB_NOT_FOUND",
        "NOT_LEASE_HOLDER",
        "STALE_LEASE",
    }
)
_BASE_SECONDS: Final = 1.0
_CAP_SECONDS: Final = 30.0


class _Undelivered:
    __slots__ = ("failures", "request", "sending", "timer")

    def __init__(self, request: daemon_plane_pb2.CompleteJobRequest) -> None:
        self.request = request
        self.failures = 0
        self.sending = False
        self.timer: TimerHandle | None = None


class ResultDelivery:
    """The results that the relay does not have yet. Their leases are still held and renewed."""

    def __init__(
        self,
        calls: DualCalls,
        spool: Spool | None,
        *,
        clock: Clock,
        random: Random,
        on_settled: Callable[[], None],
    ) -> None:
        """Deliver by these calls.

        Args:
            calls: The relay.
            spool: Where results outlive this process; None keeps them in memory alone.
            clock: Times repeats.
            random: Jitter.
            on_settled: Told whenever a result has left.
        """
        self._calls = calls
        self._spool = spool
        self._clock = clock
        self._random = random
        self._on_settled = on_settled
        self._results: dict[str, _Undelivered] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._results)

    def leases(self) -> Iterator[job_pb2.LeaseRef]:
        """The leases of all results that are not delivered."""
        return iter([result.request.lease for result in self._results.values()])

    def recover(self) -> None:
        """Take over what an earlier process has left; it is delivered when the relay confirms its lease.

        Raises:
            SpoolError: The spool cannot be used.
        """
        for request in self._spool.open() if self._spool is not None else ():
            if milliseconds_of(request.envelope.deadline_time) > self._clock.now_ms():
                self._add(request)
            elif self._spool is not None:
                self._spool.remove(request.lease.lease_id)

    async def accept(self, request: daemon_plane_pb2.CompleteJobRequest) -> None:
        """Keep a result from now on, and deliver it."""
        # Held before it is on the disk: the lease goes on being renewed meanwhile.
        self._add(request)
        if self._spool is not None:
            try:
                await self._spool.put(request)
            except SpoolError as error:
                # Better delivered without a net than not at all.
                logger.error("a result is not safe from a crash: %s", error)
        self.deliver(request.lease.lease_id)

    def deliver(self, lease_id: str) -> bool:
        """Send a result now, unless that is under way; False when there is none under this lease."""
        result = self._results.get(lease_id)
        if result is None:
            return False
        if not result.sending:
            result.sending = True
            if result.timer is not None:
                result.timer.cancel()
            self._calls.post("complete_job", COMPLETE_JOB, result.request, partial(self._answered, result))
        return True

    def discard(self, lease_id: str) -> bool:
        """Forget a result that the relay will not take or has; False when there is none under this lease."""
        result = self._results.pop(lease_id, None)
        if result is None:
            return False
        if result.timer is not None:
            result.timer.cancel()
        if self._spool is not None:
            self._spool.remove(lease_id)
        if not self._results:
            self._idle.set()
        self._on_settled()
        return True

    async def flush(self) -> None:
        """Return when everything has been delivered or refused."""
        await self._idle.wait()

    def close(self) -> None:
        """Send nothing more; what is in the spool stays there."""
        for result in self._results.values():
            if result.timer is not None:
                result.timer.cancel()
        if self._spool is not None:
            self._spool.close()

    def _add(self, request: daemon_plane_pb2.CompleteJobRequest) -> None:
        self._results[request.lease.lease_id] = _Undelivered(request)
        self._idle.clear()

    def _answered(
        self, result: _Undelivered, answer: daemon_plane_pb2.CompleteJobResponse | RelayError
    ) -> None:
        result.sending = False
        lease = result.request.lease
        if not isinstance(answer, RelayError):
            self.discard(lease.lease_id)
        elif answer.reason in _FINAL:
            logger.warning("the result of job %s is not wanted any more: %s", lease.job_id, answer)
            self.discard(lease.lease_id)
        elif lease.lease_id in self._results:
            result.failures += 1
            bound = min(_CAP_SECONDS, _BASE_SECONDS * 2 ** min(result.failures, 8))
            wait = (answer.retry_after_ms or 0) / 1000 + self._random.uniform(0, bound)
            logger.warning("the result of job %s is sent again in %.1f s: %s", lease.job_id, wait, answer)
            result.timer = self._clock.call_later(wait, lambda: self.deliver(lease.lease_id))
