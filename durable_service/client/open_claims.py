"""Claims whose answer is not known yet: what they were granted is found again under their ids."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from durable_service.client.calls import Calls
from durable_service.client.errors import DurableError
from durable_service.client.methods import CLAIM_FOR_RECOVERY, CLAIM_NEXT, CLAIM_TASK, RELEASE_TASK
from durable_service.core.definition import Driver
from sealwork.durable.v1 import lease_pb2, task_pb2
from sealwork.durable.v1 import worker_service_pb2 as pb
from service_common.unary_calls import ATTEMPTS, may_help_again

logger = logging.getLogger("sealwork.client")

SPENT: Final = frozenset({"LEASE_LOST", "REQUEST_ID_REUSED"})
"""Answers to a claim whose id was granted a lease that is over, or another task."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is claimed: the next task, one by its id, or one to settle what is open in it."""

    task_id: str = ""
    recovery: bool = False


NEXT: Final = Wanted()


@dataclass(slots=True)
class _OpenClaim:
    wanted: Wanted
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    under_way: bool = False


class OpenClaims:
    """Gives each claim an id that it keeps until it is answered.

    A claim is committed before it is answered, and the answer can be lost. The same id gets the same lease,
    so a claim is repeated under it, and what is not repeated any more is given back.
    """

    def __init__(self, calls: Calls, worker_id: str, drivers: Sequence[Driver]) -> None:
        """Claim as this worker, for these drivers."""
        self._calls = calls
        self._worker_id = worker_id
        self._drivers = [task_pb2.DriverRef(id=each.id, version=each.version) for each in drivers]
        self._open: dict[str, _OpenClaim] = {}
        self._giving_back = asyncio.Lock()
        self._named_settled = asyncio.Event()
        self._named_settled.set()

    def is_open(self, wanted: Wanted) -> bool:
        """Whether such a claim is under way, or was not answered."""
        return any(claim.wanted == wanted for claim in self._open.values())

    @asynccontextmanager
    async def of(self, wanted: Wanted) -> AsyncIterator[str]:
        """Give the id to claim with; once the block has ended well, what was granted is in good hands.

        A refusal is an answer as well. After anything else the id stays the same for the next time.
        """
        idle = (each for each in self._open.values() if each.wanted == wanted and not each.under_way)
        claim = next(idle, None) or _OpenClaim(wanted)
        self._open[claim.id] = claim
        self._moved(claim, under_way=True)
        try:
            yield claim.id
        except DurableError as error:
            if _is_answer(error):
                self._close(claim)
            raise
        else:
            self._close(claim)
        finally:
            self._moved(claim, under_way=False)

    async def named_settled(self) -> None:
        """Return once no claim of a task by its id is under way."""
        await self._named_settled.wait()

    def next_request(self, claim_id: str) -> pb.ClaimNextRequest:
        """Return a request for the next task, which waits for none."""
        return pb.ClaimNextRequest(claim_id=claim_id, worker_id=self._worker_id, drivers=self._drivers)

    async def give_back(self) -> None:
        """Release what claims that are no longer repeated were granted; return once that is known.

        A service that cannot be reached is asked again and again: whoever calls sets the bound.
        """
        async with self._giving_back:
            for claim in tuple(self._open.values()):
                if not claim.under_way:
                    claim.under_way = True
                    try:
                        await self._give_back_one(claim)
                    finally:
                        claim.under_way = False

    async def _give_back_one(self, claim: _OpenClaim) -> None:
        while claim.id in self._open:
            try:
                if await self._was_granted(claim):
                    await self._release(claim)
            except DurableError as error:
                if may_help_again(error):
                    await self._calls.pause(ATTEMPTS, error)
                    continue
                logger.info("a claim that was not answered could not be given back: %s", error)
            self._close(claim)

    async def _was_granted(self, claim: _OpenClaim) -> bool:
        """Ask without claiming anything: an id that was granted a task is refused for every other one."""
        try:
            await self._claim_by_id(claim, f"no-task-{claim.id}")
        except DurableError as error:
            if error.reason == "TASK_NOT_FOUND":
                return False
            if error.reason != "REQUEST_ID_REUSED":
                raise
        return True

    async def _release(self, claim: _OpenClaim) -> None:
        if claim.wanted == NEXT:
            answer: Any = await self._calls.call(CLAIM_NEXT, self.next_request(claim.id))
        else:
            answer = await self._claim_by_id(claim, claim.wanted.task_id)
        if not answer.HasField("claimed"):
            return
        claimed = answer.claimed
        lease = lease_pb2.LeaseRef(
            task_id=claimed.task.task_id, worker_id=self._worker_id, fence=claimed.lease.fence
        )
        await self._calls.call(RELEASE_TASK, pb.ReleaseTaskRequest(lease=lease))
        logger.info("the task %s is given back: the answer to its claim was lost", lease.task_id)

    async def _claim_by_id(self, claim: _OpenClaim, task_id: str) -> Any:
        named = {"task_id": task_id, "claim_id": claim.id, "worker_id": self._worker_id}
        if claim.wanted.recovery:
            return await self._calls.call(CLAIM_FOR_RECOVERY, pb.ClaimForRecoveryRequest(**named))
        return await self._calls.call(CLAIM_TASK, pb.ClaimTaskRequest(**named))

    def _moved(self, claim: _OpenClaim, *, under_way: bool) -> None:
        claim.under_way = under_way
        if any(each.under_way and each.wanted != NEXT for each in self._open.values()):
            self._named_settled.clear()
        else:
            self._named_settled.set()

    def _close(self, claim: _OpenClaim) -> None:
        self._open.pop(claim.id, None)


def _is_answer(error: DurableError) -> bool:
    """Whether the service has decided, and not only failed on the way to that."""
    return bool(error.reason) and error.reason != "INTERNAL" and not may_help_again(error)
