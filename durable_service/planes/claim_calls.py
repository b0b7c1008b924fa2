"""How workers come to hold tasks: the next one, one by its id, one to recover."""

import asyncio
from collections import OrderedDict
from contextlib import suppress
from typing import Final

from durable_service.admission import Operation, facts_of
from durable_service.caller import Caller, for_caller, visible
from durable_service.core.claims import (
    ClaimAnswer,
    Claimed,
    ClaimRequest,
    Exhausted,
    NotClaimable,
    Unclaimable,
    claim,
    claim_for_recovery,
    claim_id_reused,
)
from durable_service.core.definition import Driver, TaskKey
from durable_service.core.errors import DomainError, Reason
from durable_service.core.leases import release
from durable_service.core.model import ClaimReason, Holder, TaskRecord
from durable_service.core.step import Decision
from durable_service.planes.admission_desk import ADMISSION_REFUSED, journaled
from durable_service.planes.claim_order import ClaimOrder
from durable_service.planes.claims_under_way import ClaimsUnderWay, ClaimUnderWay, finished
from durable_service.planes.convert import (
    drivers_of,
    duration_of,
    lease_message,
    milliseconds_of_duration,
    status_message,
)
from durable_service.planes.parts import Parts
from durable_service.planes.refusals import role_not_allowed
from durable_service.planes.task_messages import task_message
from durable_service.planes.validation import Checks
from durable_service.store.base import ClaimableQuery, Mutation
from sealwork.durable.v1 import claim_pb2, task_pb2, worker_service_pb2
from service_common.clocks import Clock
from service_common.deadlines import within
from service_common.errors import ServiceError

REASONS: Final = {
    ClaimReason.FRESH: claim_pb2.CLAIM_REASON_FRESH,
    ClaimReason.RESUMED: claim_pb2.CLAIM_REASON_RESUMED,
    ClaimReason.RECLAIMED: claim_pb2.CLAIM_REASON_RECLAIMED,
    ClaimReason.RECOVERY: claim_pb2.CLAIM_REASON_RECOVERY,
}
OBSTACLES: Final = {
    Unclaimable.TERMINAL: claim_pb2.NOT_CLAIMABLE_REASON_TERMINAL,
    Unclaimable.LEASED: claim_pb2.NOT_CLAIMABLE_REASON_LEASED,
    Unclaimable.AWAITING_APPROVAL: claim_pb2.NOT_CLAIMABLE_REASON_AWAITING_APPROVAL,
    Unclaimable.RECOVERY_ONLY: claim_pb2.NOT_CLAIMABLE_REASON_RECOVERY_ONLY,
    Unclaimable.NOT_BEFORE: claim_pb2.NOT_CLAIMABLE_REASON_NOT_BEFORE,
    Unclaimable.NOTHING_TO_RECOVER: claim_pb2.NOT_CLAIMABLE_REASON_NOTHING_TO_RECOVER,
}
# Candidates looked at in one turn: another worker may be faster at some of them.
_CANDIDATES: Final = 10
# Tasks that the policy may refuse a call before it is told that there is nothing.
_MOST_REFUSED: Final = 1_000
# Turns in a row in which others were faster at every candidate.
_TURNS: Final = 10
# Whoever waits is told of work. This is for what nobody told of, such as a pause that began before a restart.
_SAFETY_SECONDS: Final = 5.0
# Claims whose repeat is recognised after their lease is over.
_REMEMBERED: Final = 10_000


class _WaitingClaim:
    """A call that waits for a first task."""

    def __init__(self, tenant_id: str, drivers: frozenset[Driver]) -> None:
        self.tenant_id = tenant_id
        self.drivers = drivers
        self._offered = asyncio.Event()

    def offer(self, driver: Driver, count: int) -> bool:
        """Wakes the call; one that was woken already leaves the task to somebody else."""
        if self._offered.is_set():
            return False
        self._offered.set()
        return True

    def begin(self) -> None:
        self._offered.clear()

    def wake(self) -> None:
        self._offered.set()

    async def wait(self, clock: Clock, seconds: float) -> None:
        try:
            await within(clock, seconds, self._offered.wait())
        except TimeoutError:
            return


class ClaimCalls:
    """The claims of WorkerService."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._store = parts.store
        self._claims: OrderedDict[tuple[str, str], TaskKey] = OrderedDict()
        # Tasks that a call of this process is about to be given: the other calls need not try.
        self._promised: set[TaskKey] = set()
        self._under_way = ClaimsUnderWay()
        self._order = ClaimOrder(parts.random)

    async def claim_next(
        self, caller: Caller, request: worker_service_pb2.ClaimNextRequest
    ) -> worker_service_pb2.ClaimNextResponse:
        checks = Checks()
        checks.drivers("drivers", request.drivers, 1)
        checks.wait("wait", request.wait)
        checks.label("worker_id", request.worker_id)
        checks.label("claim_id", request.claim_id)
        checks.raise_faults()
        drivers = drivers_of(request.drivers)
        require_drivers(caller, drivers)
        ask = self._request(caller, request.worker_id, request.claim_id)
        async with self._under_way.entered((ask.worker_id, ask.claim_id)) as under_way:
            won, known = None, await self._known(caller, ask)
            if known is None:
                seconds = milliseconds_of_duration(request.wait) / 1000
                won = await self._wait_for_one(caller, ask, drivers, seconds, under_way)
                if won is None and not under_way.superseded:
                    # An earlier call of it may still have been waiting at another process.
                    known = await self._known(caller, ask)
            if known is not None:
                return worker_service_pb2.ClaimNextResponse(claimed=await self._again(caller, known, ask))
        if won is None:
            return worker_service_pb2.ClaimNextResponse()
        return worker_service_pb2.ClaimNextResponse(claimed=await self._claimed(caller, won))

    async def claim_task(
        self, caller: Caller, request: worker_service_pb2.ClaimTaskRequest
    ) -> worker_service_pb2.ClaimTaskResponse:
        key, ask = self._named(caller, request)
        async with self._under_way.entered((ask.worker_id, ask.claim_id)):
            await self._check_unused(caller, key, ask)
            decision = await self._claim(caller, key, ask)
        answer = decision.answer
        if isinstance(answer, Claimed):
            return worker_service_pb2.ClaimTaskResponse(claimed=await self._claimed(caller, decision))
        if isinstance(answer, Exhausted):
            return worker_service_pb2.ClaimTaskResponse(stopped=status_message(decision.record))
        return worker_service_pb2.ClaimTaskResponse(
            not_claimable=await self._not_claimable(decision.record, answer)
        )

    async def claim_for_recovery(
        self, caller: Caller, request: worker_service_pb2.ClaimForRecoveryRequest
    ) -> worker_service_pb2.ClaimForRecoveryResponse:
        key, ask = self._named(caller, request)
        async with self._under_way.entered((ask.worker_id, ask.claim_id)):
            await self._check_unused(caller, key, ask)
            admission_id = await self._admitted(caller, key, Operation.RECOVER)
            mutate = for_caller(caller, lambda record, now_ms: claim_for_recovery(record, ask, now_ms))
            decision = await finished(self._granted(key, ask, journaled(mutate, admission_id)))
        answer = decision.answer
        if isinstance(answer, NotClaimable):
            return worker_service_pb2.ClaimForRecoveryResponse(
                not_claimable=await self._not_claimable(decision.record, answer)
            )
        return worker_service_pb2.ClaimForRecoveryResponse(claimed=await self._claimed(caller, decision))

    def _named(
        self,
        caller: Caller,
        request: worker_service_pb2.ClaimTaskRequest | worker_service_pb2.ClaimForRecoveryRequest,
    ) -> tuple[TaskKey, ClaimRequest]:
        checks = Checks()
        checks.identifier("task_id", request.task_id)
        checks.label("worker_id", request.worker_id)
        checks.label("claim_id", request.claim_id)
        checks.raise_faults()
        key = caller.key(request.task_id)
        return key, self._request(caller, request.worker_id, request.claim_id)

    async def _check_unused(self, caller: Caller, key: TaskKey, ask: ClaimRequest) -> None:
        if await self._known(caller, ask) not in {None, key}:
            raise claim_id_reused()

    async def _again(self, caller: Caller, key: TaskKey, ask: ClaimRequest) -> claim_pb2.ClaimedTask:
        """What this claim id was granted before, by whichever process."""
        decision = await self._claim(caller, key, ask)
        claimed = await self._claimed(caller, decision)
        if claimed is None:
            raise DomainError(
                Reason.LEASE_LOST,
                "the lease of this claim id is over: claim with a new one",
                {"current_fence": str(decision.record.fence)},
            )
        return claimed

    async def _wait_for_one(
        self,
        caller: Caller,
        ask: ClaimRequest,
        drivers: frozenset[Driver],
        seconds: float,
        under_way: ClaimUnderWay,
    ) -> Decision[ClaimAnswer] | None:
        """The first task that can be had; None when there is none, or the claim was granted one elsewhere."""
        clock = self._parts.clock
        end = clock.monotonic() + seconds
        waiting = _WaitingClaim(caller.tenant_id, drivers)
        under_way.on_superseded(waiting.wake)
        if seconds > 0:
            # Before the first look: what comes in between is not missed.
            self._parts.offers.enter(waiting)
        try:
            with self._parts.watches.ending(waiting.wake):
                waited = False
                while not under_way.superseded:
                    waiting.begin()
                    won = await self._claim_one(caller, ask, drivers, waited=waited)
                    remaining = end - clock.monotonic()
                    if won is not None or remaining <= 0 or self._parts.watches.leaving.is_set():
                        return won
                    await waiting.wait(clock, min(remaining, _SAFETY_SECONDS))
                    waited = True
                return None
        except DomainError as error:
            if error.reason is not Reason.REQUEST_ID_REUSED:
                raise
            return None
        finally:
            self._parts.offers.leave(waiting)

    async def _claim_one(
        self, caller: Caller, ask: ClaimRequest, drivers: frozenset[Driver], *, waited: bool
    ) -> Decision[ClaimAnswer] | None:
        turn = 0
        # Those that the policy refuses stay where they are, and behind them there may be others.
        refused: set[TaskKey] = set()
        while turn < _TURNS and len(refused) < _MOST_REFUSED:
            passed_over = self._promised | refused
            limit = self._order.widened(_CANDIDATES + len(passed_over))
            found = await self._store.claimable(ClaimableQuery(caller.tenant_id, drivers, limit=limit))
            free = [candidate.key for candidate in found if candidate.key not in passed_over]
            # All that were found may have been promised meanwhile, and behind them there may be others.
            if not free and len(found) < limit:
                return None
            # The caller may have lost its connection, and have been given a task by another process since.
            if waited and free and await self._known(caller, ask) is not None:
                raise claim_id_reused()
            # Those without attempts leave the queue by being claimed; behind them there may be others.
            turn += 1
            for key in self._order.of(free):
                try:
                    decision = await self._claim_unpromised(caller, key, ask)
                except ServiceError as error:
                    if error.reason != ADMISSION_REFUSED:
                        raise
                    refused.add(key)
                    turn = 0
                    continue
                if decision is not None and isinstance(decision.answer, Claimed):
                    return decision
                if decision is not None and isinstance(decision.answer, Exhausted):
                    turn = 0
                elif decision is not None:
                    self._order.lost()
        return None

    async def _claim_unpromised(
        self, caller: Caller, key: TaskKey, ask: ClaimRequest
    ) -> Decision[ClaimAnswer] | None:
        if key in self._promised:
            return None
        self._promised.add(key)
        try:
            return await self._claim(caller, key, ask)
        except DomainError as error:
            # It was purged since.
            if error.reason is not Reason.TASK_NOT_FOUND:
                raise
            return None
        finally:
            self._promised.discard(key)

    async def _claim(self, caller: Caller, key: TaskKey, ask: ClaimRequest) -> Decision[ClaimAnswer]:
        admission_id = await self._admitted(caller, key, Operation.CLAIM)
        mutate = for_caller(caller, lambda record, now_ms: claim(record, ask, now_ms))
        decision = await finished(self._granted(key, ask, journaled(mutate, admission_id)))
        if isinstance(decision.answer, Claimed):
            await self._admit_claimed(caller, decision.record, decision.answer)
        return decision

    async def _granted(
        self, key: TaskKey, ask: ClaimRequest, mutate: Mutation[ClaimAnswer]
    ) -> Decision[ClaimAnswer]:
        decision = await self._store.update(key, mutate)
        if isinstance(decision.answer, Claimed):
            self._remember(ask, key)
        return decision

    async def _admitted(self, caller: Caller, key: TaskKey, operation: Operation) -> str | None:
        desk = self._parts.admission
        if not desk.asks:
            return None
        record = visible(caller, await self._store.get(key))
        return await desk.admit(operation, caller, facts_of(record))

    async def _admit_claimed(self, caller: Caller, record: TaskRecord, claimed: Claimed) -> None:
        """Asks again about the task as it was claimed: it may have changed since; a refusal gives it back."""
        try:
            await self._parts.admission.admit(Operation.CLAIM, caller, facts_of(record))
        except ServiceError:
            holder = Holder(claimed.lease.worker_id, claimed.lease.fence)
            self._claims.pop((claimed.lease.worker_id, claimed.lease.claim_id), None)
            with suppress(DomainError):
                await self._store.update(record.key, lambda task, now_ms: release(task, holder, now_ms))
            raise

    async def _known(self, caller: Caller, ask: ClaimRequest) -> TaskKey | None:
        """The task that this claim id was granted."""
        remembered = self._claims.get((ask.worker_id, ask.claim_id))
        if remembered is not None:
            return remembered
        # Another process, or this one before a restart, may have granted it.
        return await self._store.granted(caller.tenant_id, ask.worker_id, ask.claim_id)

    def _remember(self, ask: ClaimRequest, key: TaskKey) -> None:
        self._claims[ask.worker_id, ask.claim_id] = key
        if len(self._claims) > _REMEMBERED:
            self._claims.popitem(last=False)

    def _request(self, caller: Caller, worker_id: str, claim_id: str) -> ClaimRequest:
        return ClaimRequest(caller.holder_name(worker_id), claim_id, self._parts.lease_ms)

    async def _claimed(self, caller: Caller, decision: Decision[ClaimAnswer]) -> claim_pb2.ClaimedTask | None:
        answer = decision.answer
        if not isinstance(answer, Claimed):
            return None
        now_ms = await self._store.now_ms()
        return claim_pb2.ClaimedTask(
            task=task_message(decision.record, caller, task_pb2.TASK_VIEW_WORKER, now_ms),
            lease=lease_message(answer.lease, now_ms),
            reason=REASONS[answer.reason],
        )

    async def _not_claimable(self, record: TaskRecord, answer: NotClaimable) -> claim_pb2.NotClaimable:
        message = claim_pb2.NotClaimable(reason=OBSTACLES[answer.why], status=status_message(record))
        if answer.until_ms is not None:
            message.retry_after.CopyFrom(duration_of(answer.until_ms - await self._store.now_ms()))
        if answer.why is Unclaimable.AWAITING_APPROVAL:
            message.approval_ids.extend(answer.ids)
        elif answer.why is Unclaimable.RECOVERY_ONLY:
            message.action_ids.extend(answer.ids)
        return message


def require_drivers(caller: Caller, drivers: frozenset[Driver]) -> None:
    """Raises ROLE_NOT_ALLOWED unless the credential allows each of these drivers."""
    if not all(map(caller.executes, drivers)):
        raise role_not_allowed("the principal does not execute one of these drivers")
