"""The durable service on databases: deployments, ratios, limits."""

import os
from collections.abc import AsyncIterator, Sequence

from bench.databases import plan
from bench.databases.contestants import BARE, BareLoop, Contestant, Services
from bench.databases.database import KINDS, DatabaseKind
from bench.databases.disk import sync_ms
from bench.databases.growth import growth
from bench.databases.rounds import Rounds, measure_in_turns
from bench.databases.shares import Shares
from bench.deployment_costs import DeploymentCost
from bench.our_relay.workbench import Bench
from bench.quantiles import median, quantile
from bench.report import Comparison, Holding, Section
from bench.variant import VariantUnavailableError

MEMORY, SQLITE, BARE_LOOP = "memory", "SQLite", "no service"
_NOTES = (
    "workers have a stream each and one operation under way; they are spread over the replicas",
    "create and claim are signed unary calls; renew (one lease), event and complete ride the stream",
    "lifecycle: create, claim and complete, one after the other",
    "service: all its processes together; the load is on one core, and everything else on any",
    "limit: the process that is at the end of its core, or all cores, where none of them is idle",
    "waiting: there is room, and each waits for the next or for the disk; others: programs not ours",
)


async def databases(bench: Bench) -> AsyncIterator[Section]:
    yield await _embedded(bench)
    for kind in KINDS:
        yield await _on_database(bench, kind)
    yield await growth(bench)


def replicas_name(replicas: int) -> str:
    """The name of a deployment in the tables."""
    return "1 replica" if replicas == 1 else f"{replicas} replicas"


async def _embedded(bench: Bench) -> Section:
    section = _section("Durable service with a store of its own, one process")
    section.notes.append("SQLite flushes each group of commits to the disk: synchronous=FULL")
    contestants = [Services(MEMORY, "memory:"), _sqlite()]
    found = await _measured(bench, "embedded stores", contestants, bench.effort.databases.operations)
    _tabulate(section, found, [MEMORY, SQLITE], one_core=False)
    section.holdings.append(Holding("8 KiB written and flushed to this disk, median", await sync_ms(), "ms"))
    return section


async def _on_database(bench: Bench, kind: DatabaseKind) -> Section:
    section = _section(f"Durable service on {kind.title}, {plan.REPLICAS[0]} to {plan.REPLICAS[-1]} replicas")
    section.notes.append(kind.note)
    section.notes.append(
        "each deployment has a server of its own, so that none of them costs another anything"
    )
    section.notes.append(
        f"{BARE}: a row of its own for each worker, set if its version is still the one that was set last"
    )
    try:
        kind.require()
    except VariantUnavailableError as missing:
        section.absent[kind.title] = str(missing)
        return section
    effort = bench.effort.databases
    operations = effort.few_operations if kind.slow else effort.operations
    found = await _measured(bench, kind.title, _contestants(kind), operations)
    names = [SQLITE, *map(replicas_name, plan.REPLICAS), BARE_LOOP]
    _tabulate(section, found, names, one_core=kind.one_core)
    _compare(section, found)
    return section


def _contestants(kind: DatabaseKind) -> list[Contestant]:
    served = [Services(replicas_name(number), kind, replicas=number) for number in plan.REPLICAS]
    return [_sqlite(), *served, BareLoop(BARE_LOOP, kind)]


def _sqlite() -> Services:
    return Services(SQLITE, "sqlite:")


async def _measured(bench: Bench, what: str, contestants: Sequence[Contestant], operations: int) -> Rounds:
    with bench.session.progress() as progress:
        return await measure_in_turns(
            contestants,
            crews=plan.CREWS,
            rounds=bench.effort.databases.rounds,
            operations=operations,
            random=bench.session.random,
            progress=lambda line: progress(f"{what}: {line}"),
        )


def _section(title: str) -> Section:
    note = f"load average when it began: {os.getloadavg()[0]:.1f}"
    return Section(title, "operation", notes=[*_NOTES, note])


def _tabulate(section: Section, found: Rounds, names: Sequence[str], *, one_core: bool) -> None:
    for name in names:
        for workers in plan.CREWS:
            for operation in (*Services.operations, BARE):
                bursts = list(found.bursts.get((name, workers, operation), {}).values())
                if bursts:
                    latencies = [each for burst in bursts for each in burst.latencies_ms]
                    shares = Shares.total(burst.shares for burst in bursts)
                    rate = median(burst.rate for burst in bursts)
                    section.deployments.append(
                        _cost((name, workers, operation), latencies, rate, shares, one_core=one_core)
                    )
    section.absent |= found.absent


def _cost(
    place: tuple[str, int, str], latencies: Sequence[float], rate: float, shares: Shares, *, one_core: bool
) -> DeploymentCost:
    return DeploymentCost(
        *place,
        samples=len(latencies),
        rate=rate,
        p50_ms=quantile(latencies, 0.5),
        p99_ms=quantile(latencies, 0.99),
        service_cores=shares.cores(sum(shares.services)),
        busiest_cores=shares.cores(max(shares.services)),
        database_cores=shares.cores(shares.database),
        load_cores=shares.cores(shares.load),
        idle_cores=shares.cores(shares.idle),
        limit=shares.limit(database_on_one_core=one_core),
    )


def _compare(section: Section, found: Rounds) -> None:
    one = replicas_name(1)
    for operation in plan.COMPARED:
        for workers in plan.CREWS:
            _add(section, found, workers, (one, operation), (SQLITE, operation))
            for number in plan.REPLICAS:
                if number > 1 and workers > 1:
                    _add(section, found, workers, (replicas_name(number), operation), (one, operation))
            if operation in plan.WRITES:
                _add(section, found, workers, (one, operation), (BARE_LOOP, BARE))


def _add(
    section: Section, found: Rounds, workers: int, above: tuple[str, str], below: tuple[str, str]
) -> None:
    ratio = found.ratio((above[0], workers, above[1]), (below[0], workers, below[1]))
    if ratio is not None:
        against = below[0] if above[1] == below[1] else f"{below[0]}, {below[1]}"
        name = f"a second, {above[1]}, {workers} at a time: {above[0]} / {against}"
        section.comparisons.append(Comparison(name, ratio))
