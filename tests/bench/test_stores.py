import io
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from random import Random

import pytest
from rich.console import Console

from bench.our_relay import plan
from bench.our_relay.workbench import Bench
from bench.session import Session
from bench.stores import opened
from bench.stores.alternation import Alternation, alternate
from bench.stores.compare_stores import stores
from bench.stores.opened import OpenedStore
from bench.stores.plan import StorePlan
from bench.stores.population import Operation, Population
from bench.stores.valkey_server import ValkeyServer
from bench.variant import VariantFailedError, VariantUnavailableError
from relay_service.core.model import JobState
from tests.relay_service.store.valkey_fixture import require_valkey

OPENED = [
    pytest.param(opened.memory, id="memory"),
    pytest.param(opened.valkey, marks=pytest.mark.process, id="valkey"),
    pytest.param(opened.embedded_valkey, marks=pytest.mark.process, id="embedded"),
]
OPERATIONS = ["enqueue", "claim", "seal", "renew", "take payload", "complete", "acknowledge"]


async def still_queued(store: OpenedStore) -> int:
    return sum(job.state is JobState.QUEUED for job in await store.store.jobs())


@pytest.mark.parametrize("open_store", OPENED)
async def test_as_many_jobs_are_queued_after_the_rounds_as_before(
    open_store: Callable[[], AbstractAsyncContextManager[OpenedStore]],
) -> None:
    if open_store is not opened.memory:
        require_valkey()
    async with open_store() as few, open_store() as many:
        populations = [Population(few, 130), Population(many, 300)]
        for population in populations:
            await population.fill()
        found = await alternate(
            populations, rounds=2, in_flight=4, random=Random(1), progress=lambda _line: None
        )
        assert (await still_queued(few), await still_queued(many)) == (130, 300)
        assert len(await many.store.jobs()) == 300
    assert [operation.value for operation in Operation] == OPERATIONS
    for queued in (130, 300):
        for operation in Operation:
            samples = found.of(queued, operation)
            assert [len(timed) for timed in samples.latencies_ms] == [16, 16]
            assert min(samples.rates) > 0
            assert len(samples.rates) == len(samples.cpu_ms) == 2
            assert sum(samples.cpu_ms) > 0


async def test_an_operation_that_does_not_happen_ends_the_run() -> None:
    async with opened.memory() as store:
        population = Population(store, 0)
        with pytest.raises(VariantFailedError, match="claim did not happen with 0 jobs queued"):
            await population.step(Operation.CLAIM, 0)


def test_growth_is_the_median_of_ratios_within_a_round() -> None:
    found = Alternation()
    found.of(1_000, Operation.CLAIM).latencies_ms = [[1.0, 1.0, 9.0], [2.0], [4.0]]
    found.of(10_000, Operation.CLAIM).latencies_ms = [[1.5, 1.5, 1.0], [2.0], [8.0]]
    ratio = found.ratio(Operation.CLAIM, 10_000, 1_000)
    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high, ratio.pairs) == (1.5, 1.0, 2.0, 3)
    assert found.ratio(Operation.SEAL, 10_000, 1_000) is None
    found.of(1_000, Operation.CLAIM).cpu_ms = [0.5, 0.25, 0.5]
    found.of(10_000, Operation.CLAIM).cpu_ms = [0.5, 0.5, 0.5]
    cpu = found.cpu_ratio(Operation.CLAIM, 10_000, 1_000)
    assert cpu is not None
    assert (cpu.median, cpu.high) == (1.0, 2.0)


@asynccontextmanager
async def no_server() -> AsyncIterator[OpenedStore]:
    async with opened.memory() as store:
        if store.process_id:
            raise VariantUnavailableError("needs the extra")
        yield store


async def test_a_store_that_is_not_there_is_said_so_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans = (
        StorePlan("gone", no_server, in_flight=4),
        StorePlan("memory", opened.memory, in_flight=1, most_queued=200),
    )
    monkeypatch.setattr("bench.stores.compare_stores.STORES", plans)
    effort = replace(plan.QUICK, queued=(100, 200, 400), store_rounds=1)
    bench = Bench(Session(Console(file=io.StringIO())), effort, None, 100)
    gone, memory = [section async for section in stores(bench)]
    assert gone.absent == {"gone": "needs the extra"}
    assert gone.operations == []
    assert memory.absent == {}
    assert [(cost.queued, cost.operation) for cost in memory.operations] == [
        (queued, operation) for queued in (100, 200) for operation in OPERATIONS
    ]
    bounded = {comparison.name: comparison.most for comparison in memory.comparisons}
    assert len(bounded) == 14
    assert bounded["claim with 200 queued / with 100: latency"] == 2.0
    assert bounded["claim with 200 queued / with 100: CPU"] == 2.0
    assert bounded["seal with 200 queued / with 100: latency"] is None
    assert [holding.name for holding in memory.holdings] == ["memory for each of 200 queued jobs"]


async def test_without_the_extra_there_is_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    # What stands for a module that cannot be imported.
    monkeypatch.setitem(sys.modules, "relay_service.store.embedded_valkey", None)
    server = ValkeyServer()
    with pytest.raises(VariantUnavailableError, match="needs the extra"):
        await server.start()
    await server.stop()


@pytest.mark.process
async def test_the_server_ends_and_leaves_nothing_behind(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_valkey()
    folder = tmp_path_factory.mktemp("bench")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    server = ValkeyServer()
    try:
        await server.start()
        pid = server.process_id
        assert server.meter().rss_kib() > 1_000
    finally:
        await server.stop()
    assert list(folder.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
