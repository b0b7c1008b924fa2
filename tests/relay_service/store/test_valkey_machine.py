"""Random histories: the Valkey store does what the naive relay does, step by step.

It differs from the memory store in one thing: an operation lets time pass at the sites that it has to do
with, not at all of them, so the order of what time does to different sites is another one.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from relay_service.core.model import (
    Change,
    Claim,
    Disposition,
    GrantedJob,
    JobStub,
    LeaseChanged,
    LeaseRef,
    Notice,
    Refusal,
    ReleaseReason,
    RoutedJob,
    SealedEnvelope,
    Swept,
    Verdict,
)
from relay_service.core.quotas import Quotas
from relay_service.store.base import ClaimRequest, Completed, Enqueued, TooLate

from . import machine_inputs
from . import test_memory_machine as memory
from .naive_relay import DAY_MS, NaiveQuotas, NaiveRelay, Name
from .valkey_fixture import TcpServer, ValkeyRoutingStore, empty, require_valkey, site_tag, tag_of_lease
from .valkey_index_check import check_valkey_indexes

Answer = TypeVar("Answer")

QUOTAS = Quotas(
    unfinished_jobs_per_site=4,
    results_per_site=2,
    result_bytes_per_site=9,
    ended_notices_per_site=3,
    leases_per_device=3,
)


@dataclass
class SiteBySiteRelay(NaiveRelay):
    """The model, with time passing at some sites only.

    Attributes:
        concerned: where time passes now, in this order.
    """

    concerned: Sequence[str] = machine_inputs.SITES

    def pass_time(self) -> tuple[list[Name], list[Name]]:
        requeued: list[Name] = []
        ended: list[Name] = []
        for site in self.concerned:
            while due := [job for job in self.jobs if job.site == site and job.due() <= self.now]:
                job = min(due, key=lambda job: (job.due(), job.place))
                was_taken = job.taken
                self._lapse(job)
                if job not in self.jobs:
                    ended.append(job.name)
                elif was_taken:
                    requeued.append(job.name)
                self._rotate()
            self.rows = [
                row
                for row in self.rows
                if row.site != site or row.kind != "job-ended" or row.written + DAY_MS > self.now
            ]
        return requeued, ended


@dataclass
class SteppedStore:
    """The store as the machine drives it: each call runs to its end, and leases have simple names.

    It also tells the model at which sites the call let time pass.
    """

    url: str
    model: SiteBySiteRelay
    loop: asyncio.AbstractEventLoop
    names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = ValkeyRoutingStore(self.url, quotas=QUOTAS, clock_setting=lambda: str(self.model.now))
        self._numbers = count(1)
        self.run(self.store.start(20))

    def run(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        # Hints are written again after an hour of real time; here days pass in no time.
        self.store._runners._noted.clear()
        return self.loop.run_until_complete(call)

    def close(self) -> None:
        self.run(self.store.close())

    # Names of leases.

    def _real(self, lease: LeaseRef) -> LeaseRef:
        real = {name: real for real, name in self.names.items()}
        return LeaseRef(lease.job_id, real.get(lease.lease_id, lease.lease_id))

    def _site_of(self, lease: LeaseRef) -> list[str]:
        tag = tag_of_lease(self._real(lease).lease_id)
        return [site for site in machine_inputs.SITES if site_tag(site) == tag]

    def _claim(self, claim: Claim | None) -> Claim | None:
        return None if claim is None else replace(claim, lease_id=self.names[claim.lease_id])

    def _granted(self, granted: GrantedJob) -> GrantedJob:
        return replace(granted, lease_id=self.names[granted.lease_id])

    def _job(self, job: RoutedJob) -> RoutedJob:
        return replace(job, claim=self._claim(job.claim))

    def _change(self, change: Change) -> Change:
        if not isinstance(change, LeaseChanged):
            return change
        return replace(change, lease=LeaseRef(change.lease.job_id, self.names[change.lease.lease_id]))

    # What sites do.

    async def enqueue(self, site: str, stub: JobStub) -> Enqueued | Refusal:
        self.model.concerned = [site]
        return self.run(self.store.enqueue(site, stub))

    async def seal(
        self, site: str, lease: LeaseRef, recipient: str, envelope: SealedEnvelope
    ) -> RoutedJob | TooLate:
        self.model.concerned = [site]
        return self.run(self.store.seal(site, self._real(lease), recipient, envelope))

    async def cancel(self, site: str, job_id: str) -> bool:
        self.model.concerned = [site]
        return self.run(self.store.cancel(site, job_id))

    async def acknowledge(
        self, site: str, job_ids: Sequence[str], notice_ids: Sequence[str] = ()
    ) -> Sequence[str]:
        self.model.concerned = [site]
        return self.run(self.store.acknowledge(site, job_ids, notice_ids))

    async def notices(self, site: str, after: int, limit: int) -> Sequence[Notice]:
        self.model.concerned = [site]
        rows = self.run(self.store.notices(site, after, limit))
        return [replace(row, claim=self._claim(row.claim)) for row in rows]

    async def awaiting(self, site: str) -> Sequence[RoutedJob]:
        return [self._job(job) for job in self.run(self.store.awaiting(site))]

    async def finished(self, site: str) -> Sequence[RoutedJob]:
        return [self._job(job) for job in self.run(self.store.finished(site))]

    # What runners do.

    async def claim(self, request: ClaimRequest) -> Sequence[GrantedJob]:
        asked = sorted({route.site_id for route in request.routes})
        tags = self.run(self.store._runners.sites(request.runner_id))
        elsewhere = [site for site in machine_inputs.SITES if site not in asked and site_tag(site) in tags]
        alone = len(asked) == 1 and request.maximum > 0
        self.model.concerned = [*elsewhere, *asked] if alone else [*asked, *elsewhere]
        grants = self.run(self.store.claim(request))
        for grant in grants:
            if grant.lease_id not in self.names:
                self.names[grant.lease_id] = f"lease-{next(self._numbers)}"
        return [self._granted(grant) for grant in grants]

    async def authorise_grant(
        self, runner: str, lease: LeaseRef, signed_grant: bytes, lease_ms: int
    ) -> GrantedJob | None:
        self.model.concerned = self._site_of(lease)
        answer = self.run(self.store.authorise_grant(runner, self._real(lease), signed_grant, lease_ms))
        return None if answer is None else self._granted(answer)

    async def decline_grant(
        self, runner: str, lease: LeaseRef, *, refused: bool, retry_after_ms: int | None
    ) -> bool:
        self.model.concerned = self._site_of(lease)
        real = self._real(lease)
        return self.run(
            self.store.decline_grant(runner, real, refused=refused, retry_after_ms=retry_after_ms)
        )

    async def take_payload(self, runner: str, lease: LeaseRef) -> SealedEnvelope | Refusal:
        answer = self.run(self.store.take_payload(runner, self._real(lease)))
        self._concern(lease, unresolved=answer in {Refusal.NOT_FOUND, Refusal.STALE_LEASE})
        return answer

    async def complete(
        self, runner: str, lease: LeaseRef, envelope: SealedEnvelope, disposition: Disposition
    ) -> Completed | Refusal:
        answer = self.run(self.store.complete(runner, self._real(lease), envelope, disposition))
        self._concern(lease, unresolved=answer != Completed(accepted=True))
        return answer

    def _concern(self, lease: LeaseRef, *, unresolved: bool) -> None:
        """A lease that led nowhere may have made the store look at other sites: let it finish that."""
        site = self._site_of(lease)
        self.model.concerned = site
        if unresolved:
            self.run(self.store.sweep())
            self.model.concerned = [*site, *(other for other in machine_inputs.SITES if other not in site)]

    async def release_leases(
        self, runner: str, leases: Sequence[LeaseRef], reason: ReleaseReason, retry_after_ms: int | None
    ) -> Sequence[str]:
        self.model.concerned = self._site_of(leases[0])
        real = [self._real(lease) for lease in leases]
        return self.run(self.store.release_leases(runner, real, reason, retry_after_ms))

    async def renew_leases(self, runner: str, leases: Sequence[LeaseRef], lease_ms: int) -> Sequence[Verdict]:
        self.model.concerned = self._site_of(leases[0])
        return self.run(self.store.renew_leases(runner, [self._real(lease) for lease in leases], lease_ms))

    async def acknowledge_cancels(self, runner: str, leases: Sequence[LeaseRef]) -> None:
        self.model.concerned = self._site_of(leases[0])
        self.run(self.store.acknowledge_cancels(runner, [self._real(lease) for lease in leases]))

    async def held(self, runner: str) -> Sequence[GrantedJob]:
        return [self._granted(grant) for grant in self.run(self.store.held(runner))]

    async def cancel_requests(self, runner: str) -> Sequence[LeaseRef]:
        found = self.run(self.store.cancel_requests(runner))
        return [LeaseRef(lease.job_id, self.names[lease.lease_id]) for lease in found]

    # What passes at all sites.

    async def jobs(self) -> Sequence[RoutedJob]:
        return [self._job(job) for job in self.run(self.store.jobs())]

    async def sweep(self) -> Swept:
        self.model.concerned = machine_inputs.SITES
        return self.run(self.store.sweep())

    async def next_due_ms(self) -> int | None:
        return self.run(self.store.next_due_ms())

    def listen(self, listener: Callable[[Change], Any]) -> Callable[[], None]:
        return self.store.listen(lambda change: listener(self._change(change)))


class ValkeyMachine(memory.MemoryMachine):
    """The rules of the memory store's machine, on a store that a server keeps."""

    url = ""
    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        RuleBasedStateMachine.__init__(self)
        empty(self.url)
        self.naive = SiteBySiteRelay(NaiveQuotas(4, 2, 9, 3, 3), machine_inputs.START_MS)
        self.stepped = SteppedStore(self.url, self.naive, self.loop)
        self.store: Any = self.stepped
        self.changes: list[Change] = []
        self.store.listen(self.changes.append)
        self.known_leases: list[tuple[str, str, str, str]] = []
        self.advanced = False
        self.claimable: set[tuple[str, int]] = set()
        self.steps = 0

    def teardown(self) -> None:
        self.stepped.close()

    @rule(site=machine_inputs.sites, job_id=machine_inputs.job_ids)
    def acknowledge_job(self, site: str, job_id: str) -> None:
        answer = list(machine_inputs.answer_of(self.store.acknowledge(site, [job_id])))
        assert answer == ([job_id] if self.naive.acknowledge_job((site, job_id)) else [])

    @invariant()
    def they_are_equal(self) -> None:
        self.steps += 1
        # Looking lets time pass at all sites, and commands are to find that out for themselves.
        if self.advanced or self.steps % 3:
            self.advanced = False
            return
        machine_inputs.answer_of(self.store.sweep())
        self.naive.pass_time()
        self.the_same_jobs()
        self.the_same_holdings()
        self.the_same_notices()
        self.the_same_words()
        self.the_caps_hold()
        self.the_next_instant_is_true()
        check_valkey_indexes(self.url, machine_inputs.SITES)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TcpServer]:
    require_valkey()
    server = TcpServer(tmp_path_factory.mktemp("valkey-machine"))
    server.start()
    yield server
    server.stop()


def test_random_histories(server: TcpServer) -> None:
    loop = asyncio.new_event_loop()
    try:
        run_state_machine_as_test(
            type("Machine", (ValkeyMachine,), {"url": server.url, "loop": loop}),
            settings=settings(
                max_examples=40,
                stateful_step_count=50,
                deadline=None,
                # The same histories each time: a server is too slow for so many that chance would find more.
                derandomize=True,
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )
    finally:
        loop.close()
