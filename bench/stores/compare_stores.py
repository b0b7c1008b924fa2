"""The stores by themselves: variants, growth, memory."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

from bench.interleaving import Progress
from bench.operation_costs import operation_cost
from bench.our_relay.workbench import Bench
from bench.process_stats import rss_kib
from bench.report import Comparison, Holding, Section
from bench.stores.alternation import Alternation, alternate
from bench.stores.plan import GROWTH, STORES, StorePlan
from bench.stores.population import OWNERS, SITES, Operation, Population
from bench.variant import VariantFailedError, VariantUnavailableError
from relay_service.store.base import StoreUnavailable

# What may not grow with what is queued; of the others the growth is shown.
_BOUNDED = frozenset({Operation.CLAIM, Operation.RENEW})


async def stores(bench: Bench) -> AsyncIterator[Section]:
    for store_plan in STORES:
        yield await _store(bench, store_plan)


async def _store(bench: Bench, store_plan: StorePlan) -> Section:
    section = Section(f"Store: {store_plan.title}", "operation")
    section.notes = [
        f"{SITES} sites with {OWNERS} owners each; a device for each of these routes; 1 KiB of ciphertext",
        f"a second: {store_plan.in_flight} in flight; latencies: one at a time, the numbers in turns",
        f"load average when it began: {os.getloadavg()[0]:.1f}",
    ]
    wanted = [queued for queued in bench.effort.queued if queued <= store_plan.most_queued]
    try:
        with bench.session.progress() as progress:
            async with AsyncExitStack() as opened:
                await _measure(bench, section, store_plan, wanted, opened, progress)
    except (VariantUnavailableError, VariantFailedError, StoreUnavailable, OSError) as failure:
        section.absent[store_plan.title] = str(failure) or type(failure).__name__
    return section


async def _measure(
    bench: Bench,
    section: Section,
    store_plan: StorePlan,
    wanted: Sequence[int],
    opened: AsyncExitStack,
    progress: Progress,
) -> None:
    populations = []
    for queued in wanted:
        progress(f"{store_plan.title}: queueing {queued:,} jobs")
        store = await opened.enter_async_context(store_plan.open())
        before = rss_kib(store.process_id)
        population = Population(store, queued)
        await population.fill()
        populations.append(population)
        if queued == wanted[-1]:
            grown = rss_kib(store.process_id) - before
            section.holdings.append(
                Holding(f"memory for each of {queued:,} queued jobs", grown / queued, "KiB")
            )
    found = await alternate(
        populations,
        rounds=bench.effort.store_rounds,
        in_flight=store_plan.in_flight,
        random=bench.session.random,
        progress=lambda line: progress(f"{store_plan.title}: {line}"),
    )
    _tabulate(section, found, wanted)
    _compare(section, found, wanted)


def _tabulate(section: Section, found: Alternation, wanted: Sequence[int]) -> None:
    for queued in wanted:
        for operation in Operation:
            samples = found.of(queued, operation)
            latencies = [latency for timed in samples.latencies_ms for latency in timed]
            section.operations.append(
                operation_cost(queued, operation, latencies, samples.rates, samples.cpu_ms)
            )


def _compare(section: Section, found: Alternation, wanted: Sequence[int]) -> None:
    few, many = wanted[0], wanted[-1]
    pairs = [(Operation.CLAIM, queued) for queued in wanted[1:-1]]
    pairs += [(operation, many) for operation in Operation if many > few]
    for operation, queued in pairs:
        most = GROWTH if operation in _BOUNDED else None
        for what, ratio in (
            ("latency", found.ratio(operation, queued, few)),
            ("CPU", found.cpu_ratio(operation, queued, few)),
        ):
            if ratio is not None:
                name = f"{operation} with {queued:,} queued / with {few:,}: {what}"
                section.comparisons.append(Comparison(name, ratio, most=most))
