"""Keeping leases: all of them in one list, every third of their length, whichever way is open."""

import logging
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

from durable_service.client.calls import Calls
from durable_service.client.errors import DurableError
from durable_service.client.held_task import HeldTask
from durable_service.client.methods import RENEW_LEASES
from sealwork.durable.v1 import worker_push_pb2, worker_service_pb2
from service_common.client_session_types import seconds_of
from service_common.clocks import Clock, TimerHandle
from service_common.session_client import ClientStream

logger = logging.getLogger("sealwork.client")

_SPREAD: Final = 0.1
_SHARE: Final = 1 / 3
_IDLE_SECONDS: Final = 10.0
# A renewal that found no way is tried again this much sooner than the next one would be due.
_RETRY_SHARE: Final = 0.25
_FRAME_SHARE_BYTES: Final = 49_152
_LEASE_OVERHEAD_BYTES: Final = 4
_UNARY_LEASES: Final = 500


class Renewals:
    """Asks for all leases again and again. One renewal that fails is no loss: the deadline decides."""

    def __init__(
        self,
        calls: Calls,
        stream: Callable[[], ClientStream | None],
        held: Callable[[], Sequence[HeldTask]],
        spawn: Callable[..., None],
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        """Renew what `held` returns.

        Args:
            calls: The way when there is no stream, or it does not answer.
            stream: Returns the session's stream; None while there is none.
            held: Returns every lease that is to be kept.
            spawn: Runs a coroutine in the background.
            clock: Its monotonic half counts.
            random: Spreads the renewals of many workers.
        """
        self._calls = calls
        self._stream = stream
        self._held = held
        self._spawn = spawn
        self._clock = clock
        self._random = random
        self._asked: dict[int, tuple[float, Sequence[HeldTask]]] = {}
        self._next_id = 1
        self._timer: TimerHandle | None = None
        self._due = float("inf")

    def start(self) -> None:
        """Renew from now on, at a third of the shortest lease."""
        self._arm(self._interval())

    def stop(self) -> None:
        """Renew nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def claimed(self, held: HeldTask) -> None:
        """Take a new lease into account, which may be shorter than the others."""
        if self._timer is not None and self._clock.monotonic() + held.lease_seconds * _SHARE < self._due:
            self._arm(held.lease_seconds * _SHARE)

    def ask(self, held: Sequence[HeldTask]) -> None:
        """Renew these leases now."""
        stream = self._stream()
        if not held:
            return
        if stream is None:
            # What was asked on the last one is answered by nobody.
            self._asked.clear()
            self._ask_by_calls(held)
            return
        if self._asked:
            # The stream has not answered the last time. It may be dead, long before its silence proves it.
            self._ask_by_calls(held)
        self._asked.clear()
        for part in parts_of(held, stream.limits.leases_per_frame):
            renewal_id, self._next_id = self._next_id, self._next_id + 1
            self._asked[renewal_id] = (self._clock.monotonic(), part)
            renew = worker_service_pb2.RenewTasks(renewal_id=renewal_id, leases=[each.ref for each in part])
            stream.send(worker_service_pb2.WorkerItem(renew=renew), control=True)

    def answered(self, verdicts: worker_push_pb2.TaskVerdicts) -> None:
        """Take an answer to a renewal."""
        asked = self._asked.pop(verdicts.renewal_id, None)
        if asked is None:
            return
        sent_at, held = asked
        exceptions = {(each.lease.task_id, each.lease.fence): each for each in verdicts.verdicts}
        renewed = seconds_of(verdicts.renewed_for)
        for each in held:
            verdict = exceptions.get(each.key)
            if verdict is not None:
                each.heed(verdict, sent_at)
            elif renewed:
                each.extend(renewed, sent_at)

    async def ask_by_call(self, held: Sequence[HeldTask]) -> bool:
        """Renew these leases by one call; returns whether it was answered."""
        sent_at = self._clock.monotonic()
        request = worker_service_pb2.RenewLeasesRequest(leases=[each.ref for each in held])
        try:
            # One attempt: the next one counts from a later moment.
            answer = await self._calls.call(RENEW_LEASES, request, attempts=1)
        except DurableError as error:
            logger.info("leases could not be renewed: %s", error)
            return False
        for each, verdict in zip(held, answer.verdicts, strict=False):
            each.heed(verdict, sent_at)
        return True

    def _ask_by_calls(self, held: Sequence[HeldTask]) -> None:
        for start in range(0, len(held), _UNARY_LEASES):
            self._spawn(self._ask_and_retry(held[start : start + _UNARY_LEASES]))

    async def _ask_and_retry(self, held: Sequence[HeldTask]) -> None:
        if not await self.ask_by_call(held) and self._timer is not None:
            sooner = self._interval() * _RETRY_SHARE
            if self._clock.monotonic() + sooner < self._due:
                self._arm(sooner)

    def _interval(self) -> float:
        lengths = [each.lease_seconds for each in self._held() if each.lease_seconds > 0]
        interval = min(lengths) * _SHARE if lengths else _IDLE_SECONDS
        stream = self._stream()
        return interval if stream is None else min(interval, stream.limits.renew_seconds)

    def _arm(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait = seconds * self._random.uniform(1 - _SPREAD, 1)
        self._due = self._clock.monotonic() + wait
        self._timer = self._clock.call_later(wait, self._renew_all)

    def _renew_all(self) -> None:
        self._arm(self._interval())
        self.ask(self._held())


def parts_of(held: Sequence[HeldTask], most: int) -> Iterator[Sequence[HeldTask]]:
    """Split leases so that each part fits into a frame."""
    part: list[HeldTask] = []
    size = 0
    for each in held:
        bytes_of_lease = each.ref.ByteSize() + _LEASE_OVERHEAD_BYTES
        if part and (len(part) >= most or size + bytes_of_lease > _FRAME_SHARE_BYTES):
            yield part
            part, size = [], 0
        part.append(each)
        size += bytes_of_lease
    if part:
        yield part
