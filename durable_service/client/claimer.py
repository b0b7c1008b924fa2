"""Finding work: a claim whenever something may wait, and as many as there are free slots."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from durable_service.client.calls import Calls
from durable_service.client.early_answers import EarlyAnswers
from durable_service.client.errors import DurableError
from durable_service.client.held_task import HeldTask
from durable_service.client.methods import CLAIM_NEXT, RENEW_LEASES
from durable_service.client.open_claims import NEXT, OpenClaims
from durable_service.client.times import duration_of
from durable_service.client.worker_session import FINAL_REASONS
from sealwork.durable.v1 import claim_pb2, lease_pb2, worker_service_pb2
from service_common.client_backoff import Backoff
from service_common.client_session_types import seconds_of
from service_common.clocks import Clock
from service_common.deadlines import within
from service_common.unary_calls import CALL_SECONDS, may_help_again

logger = logging.getLogger("sealwork.client")

# Hints can be lost.
_UNASKED_SECONDS: Final = 60.0
_LONG_POLL_MS: Final = 10_000
# A wait uses up time of a lease that was granted at its end: past this share it is renewed before it is used.
_USED_SHARE: Final = 0.1
_FIRST_SECONDS: Final = 0.5
_KEPT: Final = frozenset({lease_pb2.LEASE_STATE_ACTIVE, lease_pb2.LEASE_STATE_CANCEL_REQUESTED})


@dataclass(frozen=True, slots=True)
class Won:
    """A task that was claimed, and its lease."""

    claimed: claim_pb2.ClaimedTask
    held: HeldTask


class Claimer:
    """Claims the task that has waited longest, again and again."""

    def __init__(
        self,
        calls: Calls,
        claims: OpenClaims,
        worker_id: str,
        *,
        free_slots: Callable[[], int],
        has_stream: Callable[[], bool],
        on_won: Callable[[Won], None],
        clock: Clock,
        random: Random,
    ) -> None:
        """Prepare.

        Args:
            calls: The service.
            claims: Knows which claims were not answered.
            worker_id: Who claims.
            free_slots: Returns how many more tasks it would take.
            has_stream: Tells whether hints can come.
            on_won: Takes what was claimed.
            clock: Times everything.
            random: Jitter.
        """
        self._calls = calls
        self._claims = claims
        self._worker_id = worker_id
        self._free_slots = free_slots
        self._has_stream = has_stream
        self._on_won = on_won
        self._clock = clock
        self._backoff = Backoff(random, first_seconds=_FIRST_SECONDS)
        self._early = EarlyAnswers(random)
        self._news = asyncio.Event()
        self._stopped = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._asking: asyncio.Task[bool] | None = None

    def wake(self) -> None:
        """Look at once: something may wait, or a slot has become free."""
        self._news.set()

    def stop(self) -> None:
        """Claim nothing more. A claim under way is cut off; the open claims know of it."""
        self._stopped.set()
        self._news.set()
        self._cut_off()

    async def settle(self) -> None:
        """Return once no claim is without an answer, so that every lease that was granted is held.

        What is under way is cut off, and asked again without waiting for a task.
        """
        await self._claims.named_settled()
        self._cut_off()
        async with self._one_at_a_time:
            if self._claims.is_open(NEXT):
                async with self._calls.afresh() as calls:
                    await self._ask_until_answered(calls)

    async def give_back(self) -> None:
        """Release what claims were granted that nobody asks about any more."""
        async with self._one_at_a_time:
            await self._claims.give_back()

    async def run(self) -> None:
        """Claim until stopped.

        Raises:
            DurableError: The service will not have this worker; another try cannot change that.
        """
        while not self._stopped.is_set():
            self._news.clear()
            if self._free_slots() <= 0:
                # There is no slot any more for what a claim without an answer may have been granted.
                await self.give_back()
                await self._news.wait()
                continue
            asked_at, given = self._clock.monotonic(), self._wait_ms() / 1000
            try:
                won = await self._in_turn()
            except DurableError as error:
                if error.reason in FINAL_REASONS:
                    raise
                await self._rest(error)
                continue
            if won is None:
                continue
            self._backoff.reset()
            if won:
                self._early.reset()
                continue
            pause = self._early.pause(given, self._clock.monotonic() - asked_at)
            if self._has_stream():
                pause = _UNASKED_SECONDS
            if pause:
                await self._pause(pause, self._news)

    async def _in_turn(self) -> bool | None:
        """Ask for a task; returns whether there was one, None when the question was cut off."""
        async with self._one_at_a_time:
            if self._stopped.is_set():
                return None
            asking = asyncio.get_running_loop().create_task(self._ask(self._calls, self._wait_ms()))
            self._asking = asking
            try:
                await asyncio.wait((asking,))
            finally:
                self._asking = None
                asking.cancel()
                await asyncio.wait((asking,))
            return None if asking.cancelled() else asking.result()

    async def _ask_until_answered(self, calls: Calls) -> None:
        while self._claims.is_open(NEXT) and not self._stopped.is_set():
            try:
                await self._ask(calls, 0)
            except DurableError as error:
                if not may_help_again(error):
                    return
                await calls.pause(1, error)

    async def _ask(self, calls: Calls, wait_ms: int) -> bool:
        sent_at = self._clock.monotonic()
        async with self._claims.of(NEXT) as claim_id:
            request = self._claims.next_request(claim_id)
            request.wait.CopyFrom(duration_of(wait_ms))
            answer = await calls.call(CLAIM_NEXT, request, timeout=CALL_SECONDS + wait_ms / 1000, attempts=1)
            won = await self.won(answer.claimed, sent_at) if answer.HasField("claimed") else None
            if won is not None:
                # Before the claim counts as answered: there is no instant at which nobody knows the lease.
                self._on_won(won)
        return won is not None

    def _wait_ms(self) -> int:
        return 0 if self._has_stream() else _LONG_POLL_MS

    def _cut_off(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    async def won(self, claimed: claim_pb2.ClaimedTask, sent_at: float) -> Won | None:
        """Return the lease of a claim that was asked for at `sent_at`; None when it is lost already."""
        remaining = seconds_of(claimed.lease.remaining)
        if self._clock.monotonic() - sent_at > remaining * _USED_SHARE:
            renewed = await self._renewed(claimed)
            if renewed is None:
                return None
            remaining, sent_at = renewed
        held = HeldTask(
            claimed.task.task_id,
            self._worker_id,
            claimed.lease.fence,
            remaining_seconds=remaining,
            sent_at=sent_at,
            clock=self._clock,
        )
        return Won(claimed, held)

    async def _renewed(self, claimed: claim_pb2.ClaimedTask) -> tuple[float, float] | None:
        lease = lease_pb2.LeaseRef(
            task_id=claimed.task.task_id, worker_id=self._worker_id, fence=claimed.lease.fence
        )
        sent_at = self._clock.monotonic()
        answer = await self._calls.call(RENEW_LEASES, worker_service_pb2.RenewLeasesRequest(leases=[lease]))
        verdict = answer.verdicts[0]
        if verdict.state not in _KEPT:
            logger.info("the task %s was lost while its claim was under way", claimed.task.task_id)
            return None
        return seconds_of(verdict.remaining), sent_at

    async def _rest(self, error: DurableError) -> None:
        logger.info("the service could not be asked for work: %s", error)
        self._backoff.fail()
        # Not cut short by hints: whatever stood against the claim would stand against the next one.
        pause = self._backoff.delay((error.retry_after_ms or 0) / 1000)
        await self._pause(pause, self._stopped)

    async def _pause(self, seconds: float, event: asyncio.Event) -> None:
        with contextlib.suppress(TimeoutError):
            await within(self._clock, seconds, _set(event))


async def _set(event: asyncio.Event) -> None:
    await event.wait()
