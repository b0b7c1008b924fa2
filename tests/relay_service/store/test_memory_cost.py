"""What an operation costs, counted in things looked at and never in time."""

import asyncio
from itertools import count, pairwise

import pytest

from relay_service.core.identity import PublicIdentity
from relay_service.core.model import (
    Audience,
    Direction,
    Disposition,
    GrantedJob,
    JobStub,
    LeaseRef,
    ReleaseReason,
    Route,
    SealedEnvelope,
    SizeClass,
)
from relay_service.core.quotas import Quotas
from relay_service.store.base import ClaimRequest
from relay_service.store.memory import MemoryRoutingStore

NOW_MS = 1_700_000_000_000
FAR_MS = NOW_MS + 100_000_000
DEVICE = PublicIdentity(b"i" * 32, b"e" * 32, b"s" * 64)
ENVELOPE = SealedEnvelope(b"AAAA", "to", "from", Direction.PAYLOAD, FAR_MS)
ALICE = Route("site", "alice")


class Relay:
    def __init__(self) -> None:
        leases = count(1)
        self.now_ms = NOW_MS
        quotas = Quotas(unfinished_jobs_per_site=1_000_000)
        self.store = MemoryRoutingStore(lambda: self.now_ms, lambda: f"lease-{next(leases)}", quotas)

    async def enqueue(self, job_id: str, route: Route = ALICE, kind: str = "generate") -> None:
        stub = JobStub(job_id, kind, route.owner, "key", Audience.TEAM, SizeClass.SMALL, False, FAR_MS)
        await self.store.enqueue(route.site_id, stub)

    async def claim(
        self, runner: str = "r1", routes: frozenset[Route] = frozenset({ALICE}), maximum: int = 1
    ) -> list[GrantedJob]:
        request = ClaimRequest(runner, "alice", DEVICE, routes, frozenset({"generate"}), maximum, 60_000)
        return list(await self.store.claim(request))

    async def inspected_by_claim(
        self, runner: str = "r1", routes: frozenset[Route] = frozenset({ALICE})
    ) -> int:
        before = self.store.inspected
        assert len(await self.claim(runner, routes)) == 1
        return self.store.inspected - before

    async def release(self, runner: str, grant: GrantedJob, reason: ReleaseReason) -> None:
        await self.store.release_leases(runner, [LeaseRef(grant.stub.id, grant.lease_id)], reason)


@pytest.fixture
def relay() -> Relay:
    return Relay()


@pytest.mark.parametrize("others", [0, 1_000, 100_000])
async def test_a_claim_does_not_look_at_what_others_have_queued(relay: Relay, others: int) -> None:
    for number in range(others):
        await relay.enqueue(f"job-{number}", Route(f"site-{number % 50}", f"owner-{number % 500}"))
    await relay.enqueue("mine")
    assert await relay.inspected_by_claim() == 3


@pytest.mark.parametrize("backlog", [1, 1_000, 20_000])
async def test_a_claim_does_not_look_behind_the_head_of_its_route(relay: Relay, backlog: int) -> None:
    for number in range(backlog):
        await relay.enqueue(f"job-{number}")
    assert await relay.inspected_by_claim() == 3


@pytest.mark.parametrize("backlog", [1, 1_000, 20_000])
async def test_a_claim_does_not_look_at_jobs_of_other_kinds(relay: Relay, backlog: int) -> None:
    for number in range(backlog):
        await relay.enqueue(f"job-{number}", kind="chat")
    await relay.enqueue("mine")
    assert await relay.inspected_by_claim() == 4


@pytest.mark.parametrize("refusals", [1, 100, 3_000])
async def test_a_claim_does_not_look_at_jobs_that_this_runner_refused(relay: Relay, refusals: int) -> None:
    for number in range(refusals):
        await relay.enqueue(f"job-{number}")
        (grant,) = await relay.claim()
        await relay.release("r1", grant, ReleaseReason.REFUSED)
    await relay.enqueue("mine")
    # One route, the lane of what it refused, and its own lane with its head.
    assert await relay.inspected_by_claim() == 4


async def test_a_device_with_many_routes_looks_at_the_busy_ones(relay: Relay) -> None:
    routes = frozenset(Route(f"site-{number}", "alice") for number in range(5_000))
    for number in (7, 8, 9):
        await relay.enqueue("job", Route(f"site-{number}", "alice"))
    # Three routes have work; one of them is served.
    assert await relay.inspected_by_claim("r1", routes) == 5


async def test_a_full_route_costs_one_look(relay: Relay) -> None:
    for number in range(1_000):
        await relay.enqueue(f"job-{number}")
    assert len(await relay.claim(maximum=64)) == 2
    before = relay.store.inspected
    assert await relay.claim("r2") == []
    assert relay.store.inspected - before == 1


async def test_cancelled_jobs_do_not_pile_up_in_a_lane(relay: Relay) -> None:
    for number in range(5_000):
        await relay.enqueue(f"job-{number}")
    for number in range(4_990):
        await relay.store.cancel("site", f"job-{4_999 - number}")
    queue = relay.store._table.queues.of(ALICE)
    (lane,) = queue.lanes.values()
    assert lane.live == 10
    assert len(lane.entries) <= 94
    assert await relay.inspected_by_claim() == 3


async def test_stale_heads_are_dropped_once(relay: Relay) -> None:
    for number in range(100):
        await relay.enqueue(f"job-{number}")
    for number in range(1, 60):
        await relay.store.cancel("site", f"job-{number}")
    first = await relay.inspected_by_claim()
    second = await relay.inspected_by_claim("r2")
    assert (first, second) == (3, 62)


async def test_a_renewal_leaves_the_due_times_alone(relay: Relay) -> None:
    await relay.enqueue("job")
    (grant,) = await relay.claim()
    lease = LeaseRef("job", grant.lease_id)
    await relay.store.seal("site", lease, DEVICE.key_id, ENVELOPE)
    entries = len(relay.store._table.due._entries)
    for _ in range(1_000):
        relay.now_ms += 15
        await relay.store.renew_leases("r1", [lease], 60_000)
    assert len(relay.store._table.due._entries) == entries


async def test_finished_jobs_leave_nothing_behind(relay: Relay) -> None:
    for number in range(2_000):
        await relay.enqueue(f"job-{number}")
        (grant,) = await relay.claim()
        lease = LeaseRef(grant.stub.id, grant.lease_id)
        await relay.store.seal("site", lease, DEVICE.key_id, ENVELOPE)
        await relay.store.take_payload("r1", lease)
        await relay.store.complete("r1", lease, ENVELOPE, Disposition.OK)
        await relay.store.acknowledge("site", [grant.stub.id])
    table = relay.store._table
    assert len(table.due._entries) <= 64
    assert (table._sites, table._leases, table._runners) == ({}, {}, {})
    assert (table.queues._known, len(table.queues._active)) == ({}, 0)
    inbox = relay.store._inboxes._sites["site"]
    assert (inbox._rows, inbox._by_id, inbox._by_job) == ({}, {}, {})
    assert len(inbox._places) <= 64


async def test_nonces_and_presence_are_dropped_a_few_at_a_time(relay: Relay) -> None:
    for number in range(1_000):
        await relay.store.use_nonce("caller", f"nonce-{number}", 1_000)
    relay.now_ms += 1_000
    kept = [len(relay.store._nonces)]
    for number in range(150):
        await relay.store.use_nonce("caller", f"later-{number}", 1_000)
        kept.append(len(relay.store._nonces))
    assert kept[0] == 1_000
    assert max(before - after for before, after in pairwise(kept)) == 7
    assert kept[-1] == 150


def test_no_operation_waits() -> None:
    relay = Relay()
    call = relay.store.now()
    with pytest.raises(StopIteration):
        call.send(None)
    assert asyncio.iscoroutine(call)
