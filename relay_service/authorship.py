"""Grants that are held back: the policy is asked about each, and its answers are carried out in turn.

The questions run beside everything else. Only their answers are steps of the dispatch, so that a slow
policy holds nobody up and yet a device hears of its grant before it hears of the payload.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import structlog

from relay_service.core.limits import DECLINE_RETRY_AFTER_MS
from relay_service.core.model import GrantedJob, LeaseRef
from relay_service.policy import Decision, Declined, Policy, WonJob
from relay_service.store.base import RoutingStore
from relay_service.waiting_room import Claimant
from service_common.background import Background

_log = structlog.get_logger(__name__)


class Batch:
    """What one claim has won.

    Attributes:
        open: grants that the policy has not been heard about.
        granted: those of a unary claim that it is answered with.
        abandoned: the claimant takes nothing any more.
        settled: done when nothing is open.
    """

    __slots__ = ("abandoned", "claimant", "granted", "open", "settled")

    def __init__(self, claimant: Claimant, granted: list[GrantedJob], count: int) -> None:
        self.claimant = claimant
        self.granted = granted
        self.open = count
        self.abandoned = False
        self.settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Authorship:
    """Asks about grants and carries the answers out.

    Args:
        may_have: whether a device may still have a job, by what is in force now.
        wake: told when `carry_out` has something to do.
        seek: told of a claimant that may claim something else now.
    """

    def __init__(
        self,
        store: RoutingStore,
        policy: Policy,
        *,
        lease_ms: int,
        may_have: Callable[[Claimant, GrantedJob], bool],
        wake: Callable[[], None],
        seek: Callable[[Claimant], None],
    ) -> None:
        self.policy = policy
        self._store = store
        self._lease_ms = lease_ms
        self._may_have = may_have
        self._wake = wake
        self._seek = seek
        self._batches: dict[int, list[Batch]] = {}
        self._answers: deque[tuple[Batch, GrantedJob, Decision]] = deque()
        self._questions = Background()

    async def close(self) -> None:
        """Gives the questions up; what is held back goes back to the queue by itself."""
        self.policy.close()
        await self._questions.cancel()

    @property
    def has_answers(self) -> bool:
        """Whether `carry_out` has something to do."""
        return bool(self._answers)

    def room(self, claimant: Claimant) -> int:
        """How many more jobs the claimant would take; a call takes one batch."""
        batches = self._batches.get(id(claimant), ())
        if batches and claimant.request_id is not None:
            return 0
        return claimant.free - sum(batch.open for batch in batches)

    async def begin(self, claimant: Claimant, won: Sequence[GrantedJob]) -> None:
        """Asks about what a claim has won, and grants at once what the policy has agreed to before."""
        held_back = [job for job in won if job.held_back]
        agreed = [job for job in won if not job.held_back]
        if agreed and (not held_back or claimant.request_id is None):
            await claimant.grant(agreed, await self._store.now())
            agreed = []
        if not held_back:
            return
        batch = Batch(claimant, agreed, len(held_back))
        self._batches.setdefault(id(claimant), []).append(batch)
        device = claimant.device
        for job in held_back:
            asked = WonJob(
                job.site_id, job.stub, job.lease_id, device.owner, device.runner_id, claimant.matrix
            )
            self._questions.run(self._ask(batch, job, self.policy.author_grant(asked)))

    def abandon(self, claimant: Claimant) -> None:
        """The claimant takes nothing any more: what is held back for it goes back."""
        for batch in self._batches.pop(id(claimant), ()):
            batch.abandoned = True

    async def settled(self, claimant: Claimant) -> None:
        """Returns when nothing is held back for the claimant."""
        while batches := self._batches.get(id(claimant)):
            await asyncio.shield(batches[0].settled)

    async def carry_out(self) -> None:
        """One answer of the policy."""
        batch, job, decision = self._answers.popleft()
        granted: GrantedJob | None = None
        try:
            granted = await self._settle(batch, job, decision)
            if granted is not None and batch.claimant.request_id is None:
                await batch.claimant.grant([granted], await self._store.now())
        finally:
            batch.open -= 1
            if granted is not None and batch.claimant.request_id is not None:
                batch.granted.append(granted)
            await self._end(batch, got_nothing=granted is None)

    async def _ask(self, batch: Batch, job: GrantedJob, question: Awaitable[Decision]) -> None:
        decision: Decision = Declined(permanent=False)
        try:
            decision = await question
        except Exception:  # noqa: BLE001 - whatever it is, the job goes back
            _log.exception("policy_failed")
        self._answers.append((batch, job, decision))
        self._wake()

    async def _settle(self, batch: Batch, job: GrantedJob, decision: Decision) -> GrantedJob | None:
        runner_id = batch.claimant.device.runner_id
        lease = LeaseRef(job.stub.id, job.lease_id)
        unwilling = batch.claimant.request_id is None and batch.claimant.free <= 0
        if batch.abandoned or unwilling or not self._may_have(batch.claimant, job):
            # Nothing was said about this device and this job: it may well be offered to it again.
            await self._store.decline_grant(runner_id, lease, refused=False)
            return None
        if isinstance(decision, Declined):
            retry_after_ms = None if decision.permanent else DECLINE_RETRY_AFTER_MS
            await self._store.decline_grant(
                runner_id, lease, refused=decision.permanent, retry_after_ms=retry_after_ms
            )
            return None
        return await self._store.authorise_grant(runner_id, lease, decision.signed_grant, self._lease_ms)

    async def _end(self, batch: Batch, *, got_nothing: bool) -> None:
        claimant = batch.claimant
        if batch.open > 0:
            if got_nothing and claimant.request_id is None:
                self._seek_for(batch)
            return
        batches = self._batches.get(id(claimant), [])
        if batch in batches:
            batches.remove(batch)
            if not batches:
                del self._batches[id(claimant)]
        try:
            if batch.granted:
                await claimant.grant(batch.granted, await self._store.now())
            elif got_nothing:
                self._seek_for(batch)
        finally:
            batch.settled.set_result(None)

    def _seek_for(self, batch: Batch) -> None:
        if not batch.abandoned:
            self._seek(batch.claimant)
