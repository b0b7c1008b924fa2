"""A store with many queued jobs, and the life of a job among them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from enum import StrEnum
from itertools import count
from time import perf_counter
from uuid import uuid4

from bench.stores.opened import OpenedStore
from bench.variant import VariantFailedError
from relay_service.core.identity import PublicIdentity
from relay_service.core.model import (
    Audience,
    Direction,
    Disposition,
    GrantedJob,
    JobStub,
    LeaseRef,
    Route,
    SealedEnvelope,
    SizeClass,
    VerdictState,
)
from relay_service.store.base import ClaimRequest, Completed, Enqueued, TooLate

SITES = 16
OWNERS = 8
ROUTES = SITES * OWNERS

_KIND = "llm.generate"
_LEASE_MS = 600_000
_YEAR_2100_MS = 4_102_444_800_000
_CIPHERTEXT = bytes(1024)
_KEY_ID = "BYOLLM-0000-0000-0000-0000-0000-0000"
# As many as keep a server busy that answers over a socket.
_FILLERS = 64


class Operation(StrEnum):
    """What happens to a job, in the order in which it happens.

    A claimed job is sealed next: it is waited for no longer than ten seconds.
    """

    ENQUEUE = "enqueue"
    CLAIM = "claim"
    SEAL = "seal"
    RENEW = "renew"
    TAKE = "take payload"
    COMPLETE = "complete"
    ACKNOWLEDGE = "acknowledge"


class _Lane:
    """One route, the device that works for it, and the job that the device holds."""

    def __init__(self, number: int) -> None:
        self.route = Route(f"site-{number % SITES}", f"owner-{number // SITES}")
        self.runner_id = f"runner-{number}"
        device = PublicIdentity(number.to_bytes(32, "big"), bytes(32), bytes(64))
        self.key_id = device.key_id
        self.claim = ClaimRequest(
            self.runner_id,
            self.route.owner,
            device,
            frozenset({self.route}),
            frozenset({_KIND}),
            1,
            _LEASE_MS,
        )
        self.payload = self._envelope(Direction.PAYLOAD)
        self.result = self._envelope(Direction.RESULT)
        self.granted: GrantedJob | None = None

    @property
    def lease(self) -> LeaseRef:
        assert self.granted is not None
        return LeaseRef(self.granted.stub.id, self.granted.lease_id)

    def new_stub(self) -> JobStub:
        return JobStub(
            str(uuid4()),
            _KIND,
            self.route.owner,
            _KEY_ID,
            Audience.PRIVATE,
            SizeClass.SMALL,
            False,
            _YEAR_2100_MS,
        )

    def _envelope(self, direction: Direction) -> SealedEnvelope:
        return SealedEnvelope(_CIPHERTEXT, self.key_id, _KEY_ID, direction, _YEAR_2100_MS)


class Population:
    """So many queued jobs in one store, spread evenly over `ROUTES` routes of `SITES` sites.

    Whatever happens to a job in its lane happens in the order of `Operation`, so that after the last of them
    as many jobs are queued as before the first.
    """

    def __init__(self, opened: OpenedStore, queued: int) -> None:
        self.queued = queued
        self.cpu_seconds = opened.cpu_seconds
        self._store = opened.store
        self._lanes = [_Lane(number) for number in range(ROUTES)]
        self._steps: Mapping[Operation, Callable[[_Lane], Awaitable[bool]]] = {
            Operation.ENQUEUE: self._enqueue,
            Operation.CLAIM: self._claim,
            Operation.SEAL: self._seal,
            Operation.RENEW: self._renew,
            Operation.TAKE: self._take,
            Operation.COMPLETE: self._complete,
            Operation.ACKNOWLEDGE: self._acknowledge,
        }
        # A relay listens to its store, and a store that has a listener does more.
        self._store.listen(lambda _change: None)

    async def fill(self) -> None:
        """Queues the jobs.

        Raises:
            VariantFailedError: the store does not take them.
        """
        numbers = count()

        async def enqueue_in_turn() -> None:
            while (number := next(numbers)) < self.queued:
                await self.step(Operation.ENQUEUE, number)

        await asyncio.gather(*(enqueue_in_turn() for _ in range(_FILLERS)))

    async def step(self, operation: Operation, number: int) -> float:
        """Does this to the job of one lane; lanes are counted round and round.

        Returns:
            Milliseconds from the call to its answer.

        Raises:
            VariantFailedError: it did not happen.
        """
        lane, work = self._lanes[number % ROUTES], self._steps[operation]
        started = perf_counter()
        happened = await work(lane)
        elapsed_ms = (perf_counter() - started) * 1000
        if not happened:
            raise VariantFailedError(f"{operation} did not happen with {self.queued:,} jobs queued")
        return elapsed_ms

    async def steps(self, operation: Operation, numbers: range, in_flight: int) -> float:
        """Does this in many lanes, so many at a time.

        Returns:
            Operations a second.
        """
        started = perf_counter()
        if in_flight == 1:
            await self._in_turn(operation, iter(numbers))
        else:
            waiting = iter(numbers)
            await asyncio.gather(*(self._in_turn(operation, waiting) for _ in range(in_flight)))
        return len(numbers) / (perf_counter() - started)

    async def _in_turn(self, operation: Operation, numbers: Iterator[int]) -> None:
        for number in numbers:
            await self.step(operation, number)

    async def _enqueue(self, lane: _Lane) -> bool:
        answer = await self._store.enqueue(lane.route.site_id, lane.new_stub())
        return isinstance(answer, Enqueued) and answer.created

    async def _claim(self, lane: _Lane) -> bool:
        granted = await self._store.claim(lane.claim)
        lane.granted = granted[0] if granted else None
        return len(granted) == 1

    async def _renew(self, lane: _Lane) -> bool:
        (verdict,) = await self._store.renew_leases(lane.runner_id, [lane.lease], _LEASE_MS)
        return verdict.state is VerdictState.ACTIVE

    async def _seal(self, lane: _Lane) -> bool:
        sealed = await self._store.seal(lane.route.site_id, lane.lease, lane.key_id, lane.payload)
        return not isinstance(sealed, TooLate)

    async def _take(self, lane: _Lane) -> bool:
        return isinstance(await self._store.take_payload(lane.runner_id, lane.lease), SealedEnvelope)

    async def _complete(self, lane: _Lane) -> bool:
        done = await self._store.complete(lane.runner_id, lane.lease, lane.result, Disposition.OK)
        return isinstance(done, Completed) and done.accepted

    async def _acknowledge(self, lane: _Lane) -> bool:
        job_id = lane.lease.job_id
        return list(await self._store.acknowledge(lane.route.site_id, [job_id])) == [job_id]
