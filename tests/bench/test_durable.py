import io
import os
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from rich.console import Console

from bench.durable import plan as durable_plan
from bench.durable.alternation import Alternation, Service, alternate
from bench.durable.child import Child
from bench.durable.compare_durable import durable
from bench.durable.crew import Crew, Operation, Phase
from bench.durable.latencies import ApprovalWakes, HandlerCancels
from bench.durable.message_pairs import MessagePairs
from bench.durable.server import MEMORY, SQLITE, STORES, DurableProcess
from bench.durable.writes import BareWrites, ServedWrites
from bench.our_relay import plan
from bench.our_relay.workbench import Bench
from bench.session import Session
from bench.variant import BurstResult, Variant, VariantFailedError, VariantUnavailableError

OPERATIONS = ["create", "claim", "renew", "event", "complete", "lifecycle"]
EFFORT = durable_plan.DurableEffort(
    rounds=1, operations=4, write_rounds=1, write_seconds=0.1, latencies=2, latency_seconds=20.0
)


async def one_burst(variant: Variant, seconds: float = 0.2) -> BurstResult:
    try:
        await variant.start()
        return await variant.burst(seconds)
    finally:
        await variant.stop()


def test_growth_is_the_median_of_ratios_within_a_round() -> None:
    found = Alternation()
    for tasks, medians in ((0, (1.0, 2.0, 4.0)), (100, (1.5, 2.0, 8.0))):
        for latency in medians:
            found.add((SQLITE, tasks, 8, Operation.CLAIM), Phase([latency, latency], 10.0, 0.5))
    ratio = found.growth(SQLITE, 8, Operation.CLAIM, 100)
    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high, ratio.pairs) == (1.5, 1.0, 2.0, 3)
    assert found.growth(SQLITE, 1, Operation.CLAIM, 100) is None
    assert found.growth(MEMORY, 8, Operation.CLAIM, 100) is None
    cost = found.cost((SQLITE, 100, 8, Operation.CLAIM))
    assert (cost.queued, cost.operation, cost.samples) == (100, "claim, 8 workers", 6)
    assert (cost.rate, cost.cpu_ms, cost.p50_ms, cost.longest_ms) == (10.0, 0.5, 2.0, 8.0)


@pytest.mark.process
async def test_every_worker_gets_its_tasks_from_services_that_have_some_and_none() -> None:
    services = [Service(store, tasks, DurableProcess(store, tasks)) for store in STORES for tasks in (0, 300)]
    try:
        for service in services:
            await service.server.start()
        found = await alternate(
            services, crews=(1, 16), rounds=1, operations=32, random=Random(1), progress=lambda _line: None
        )
    finally:
        for service in services:
            await service.server.stop()
    assert [operation.value for operation in Operation] == OPERATIONS
    for store in STORES:
        for tasks in (0, 300):
            for workers in (1, 16):
                for operation in Operation:
                    phases = found.phases[store, tasks, workers, operation]
                    assert [len(phase.latencies_ms) for phase in phases] == [32]
                    assert min(phase.rate for phase in phases) > 0


@pytest.mark.process
async def test_a_claim_that_finds_nothing_ends_the_run() -> None:
    server, crew = DurableProcess(MEMORY), Crew(1)
    try:
        await server.start()
        await crew.connect(server.address)
        with pytest.raises(VariantFailedError, match="no task to claim"):
            await crew.carry_out(Operation.CLAIM, 1, server)
    finally:
        await crew.close()
        await server.stop()


@pytest.mark.process
@pytest.mark.parametrize(
    "variant",
    [
        lambda: BareWrites("bare", 4),
        lambda: MessagePairs("messages", 4),
        lambda: ServedWrites("streams", SQLITE, 4),
        lambda: ServedWrites("one stream", MEMORY, 1, in_flight=4),
        lambda: ServedWrites("unary", SQLITE, 4, unary=True),
    ],
)
async def test_writes_are_counted(variant: Callable[[], Variant]) -> None:
    burst = await one_burst(variant())
    assert burst.operations >= 4
    assert 0 < len(burst.latencies_ms) <= burst.operations
    assert burst.server_rss_kib > 1_000
    assert burst.failures == 0


@pytest.mark.process
@pytest.mark.parametrize("variant", [lambda: HandlerCancels("a", 3), lambda: ApprovalWakes("b", 3)])
async def test_latencies_of_single_tasks(variant: Callable[[], Variant]) -> None:
    burst = await one_burst(variant(), 20.0)
    assert (burst.operations, len(burst.latencies_ms), burst.failures) == (3, 3, 0)


@pytest.mark.process
async def test_a_process_that_does_not_start_is_unavailable_and_says_why() -> None:
    child = Child("bench.durable.serving", "--no-such-option")
    try:
        with pytest.raises(VariantUnavailableError, match=r"ended: .*no-such-option"):
            await child.start(60.0)
    finally:
        await child.stop()


@pytest.mark.process
async def test_a_process_is_reaped() -> None:
    server = DurableProcess(MEMORY)
    await server.start()
    (pid,) = server.meter().pids
    await server.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.process
async def test_the_workload_has_its_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_plan, "TASKS", 50)
    monkeypatch.setattr(durable_plan, "CREWS", (1, 2))
    monkeypatch.setattr(durable_plan, "IN_FLIGHT", 2)
    effort = replace(plan.QUICK, durable=EFFORT)
    bench = Bench(Session(Console(file=io.StringIO())), effort, None, 100)
    memory, sqlite, writes, cancel, approval = [section async for section in durable(bench)]
    for section in (memory, sqlite):
        assert section.absent == {}
        assert len(section.operations) == 2 * 6 * 2
        assert {comparison.most for comparison in section.comparisons} == {1.5}
        assert len(section.comparisons) == 6 * 2
    assert writes.absent == {}
    bounds = {comparison.name: comparison.bound for comparison in writes.comparisons}
    assert bounds == {
        "rate, 2 workers, streams / SQLite store by itself": 0.6,
        "rate, 2 workers, streams: SQLite / memory": 0.6,
        "rate, 2 workers, streams, older poller / SQLite store by itself": 0.6,
        "rate, 2 workers, 1 at a time each / SQLite store by itself": 0.6,
        "rate, one worker, stream / SQLite store by itself": 0.6,
        "rate, one worker, stream: SQLite / memory": 0.6,
        "rate, 2 workers, unary calls / SQLite store by itself": 0.6,
        "rate, 2 workers, unary calls: SQLite / memory": 0.6,
        "CPU, SQLite, 2 workers, streams / SQLite store by itself and gRPC messages by themselves": None,
    }
    assert [holding.name for holding in writes.holdings] == [
        "CPU of the load for each write, 2 workers, streams",
        "CPU of the load for each write, 2 workers, streams, older poller",
        "CPU of the load for each write, 2 workers, 1 at a time each",
        "CPU of the load for each write, one worker, stream",
        "CPU of the load for each write, 2 workers, unary calls",
    ]
    assert [holding.most for holding in (*cancel.holdings, *approval.holdings)] == [100.0, None, 200.0, None]
