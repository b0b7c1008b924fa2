"""The durable service: variants, comparisons, limits."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from bench.durable import plan
from bench.durable.alternation import Alternation, Service, alternate
from bench.durable.crew import Operation
from bench.durable.latencies import ApprovalWakes, HandlerCancels
from bench.durable.message_pairs import MessagePairs
from bench.durable.server import MEMORY, SQLITE, STORES, DurableProcess
from bench.durable.writes import BareWrites, ServedWrites
from bench.figures import rate
from bench.interleaving import InterleavedRun, Progress, Ratio
from bench.our_relay.workbench import Bench
from bench.quantiles import median, paired_ratios, quantile
from bench.report import Comparison, Holding, Section
from bench.variant import VariantFailedError, VariantUnavailableError

_BARE = "SQLite store by itself"
_MESSAGES = "gRPC messages by themselves"
_CANCEL, _WAKE = "cancel", "approval"


async def durable(bench: Bench) -> AsyncIterator[Section]:
    for section in await _operations(bench):
        yield section
    yield await _writes(bench)
    for section in await _latencies(bench):
        yield section


async def _operations(bench: Bench) -> list[Section]:
    sections = {store: operations_section(store) for store in STORES}
    try:
        with bench.session.progress() as progress:
            async with AsyncExitStack() as started:
                services = await _services(started, progress)
                found = await alternate(
                    services,
                    crews=plan.CREWS,
                    rounds=bench.effort.durable.rounds,
                    operations=bench.effort.durable.operations,
                    random=bench.session.random,
                    progress=progress,
                )
    except (VariantUnavailableError, VariantFailedError, OSError) as failure:
        for section in sections.values():
            section.absent["all"] = str(failure) or type(failure).__name__
        return list(sections.values())
    for store, section in sections.items():
        tabulate(section, found, store)
    return list(sections.values())


def operations_section(store: str) -> Section:
    """What `tabulate` fills in."""
    section = Section(f"Durable service on {store}", "operation", amount="tasks before")
    section.notes = [
        "each worker has a stream and a connection of its own, and one operation under way at a time",
        "create and claim are signed unary calls; renew (one lease), event and complete ride the stream",
        "lifecycle: create, claim and complete, one after the other",
        "the tasks before wait for the same driver; claims take them from the front",
        "ratios: of the median latencies in a round",
        _load_note(),
    ]
    return section


async def _services(started: AsyncExitStack, progress: Progress) -> list[Service]:
    services = []
    for store in STORES:
        for tasks in (0, plan.TASKS):
            progress(f"starting the durable service on {store} with {tasks:,} tasks")
            server = DurableProcess(store, tasks)
            # Registered first: a start that fails half way has left something behind.
            started.push_async_callback(server.stop)
            await server.start()
            services.append(Service(store, tasks, server))
    return services


def tabulate(section: Section, found: Alternation, store: str) -> None:
    """Writes down what was measured on one store, with many tasks and with none."""
    for tasks in (0, plan.TASKS):
        for operation in Operation:
            for workers in plan.CREWS:
                section.operations.append(found.cost((store, tasks, workers, operation)))
    for operation in Operation:
        for workers in plan.CREWS:
            ratio = found.growth(store, workers, operation, plan.TASKS)
            if ratio is not None:
                name = f"{operation}, {workers} at a time: {plan.TASKS:,} tasks / none"
                section.comparisons.append(Comparison(name, ratio, most=plan.GROWTH))


@dataclass(frozen=True, slots=True)
class _Way:
    """How so many writes at a time reach the service.

    Attributes:
        in_flight: of each worker.
        environment: variables that are set for the service alone.
    """

    name: str
    workers: int
    in_flight: int = 1
    unary: bool = False
    stores: Sequence[str] = STORES
    environment: Mapping[str, str] | None = None


def _ways(most: int) -> list[_Way]:
    few = min(plan.FEW_STREAMS, most)
    return [
        _Way(f"{most} workers, streams", most),
        _Way(
            f"{most} workers, streams, older poller",
            most,
            stores=(SQLITE,),
            environment={"GRPC_EXPERIMENTS": plan.OLDER_POLLER},
        ),
        _Way(f"{few} workers, {most // few} at a time each", few, most // few, stores=(SQLITE,)),
        _Way("one worker, stream", 1, most),
        _Way(f"{most} workers, unary calls", most, unary=True),
    ]


async def _writes(bench: Bench) -> Section:
    most = plan.IN_FLIGHT
    section = Section(f"Writes under a lease, {most} at a time", "write")
    section.notes = [
        "a write is an entry in the journal of a task: the lease is compared, record and entry are set",
        f"{most} workers: one write each at a time, by stream or unary call; one worker: {most} at a time",
        "the store by itself has a process of its own as well, and takes commands from nobody else",
        "in memory: what a call costs without a disk, a unary one more than the write to a store",
        f"messages by themselves: {most} streams on which each call is answered at once and nothing is done;",
        "a service of one process takes their CPU and that of the store by itself, and its own beside these",
        f"older poller: with GRPC_EXPERIMENTS={plan.OLDER_POLLER} for the service",
        _load_note(),
    ]
    variants = {
        (store, way.name): ServedWrites(
            f"{store}, {way.name}",
            store,
            way.workers,
            in_flight=way.in_flight,
            unary=way.unary,
            environment=way.environment,
        )
        for way in _ways(most)
        for store in way.stores
    }
    effort = bench.effort.durable
    run = await bench.session.measure(
        section,
        [BareWrites(_BARE, most), MessagePairs(_MESSAGES, most), *variants.values()],
        rounds=effort.write_rounds,
        seconds=effort.write_seconds,
    )
    for (store, way_name), variant in variants.items():
        if store == SQLITE:
            _compare_writes(section, run, way_name, variant, variants.get((MEMORY, way_name)))
    streams = variants[SQLITE, f"{most} workers, streams"]
    own = _over_both(run, streams.name)
    if own is not None:
        section.comparisons.append(Comparison(f"CPU, {streams.name} / {_BARE} and {_MESSAGES}", own))
    return section


def _compare_writes(
    section: Section, run: InterleavedRun, way: str, variant: ServedWrites, in_memory: ServedWrites | None
) -> None:
    bound = plan.SHARE_OF_STORE
    section.compare(run, f"rate, {way} / {_BARE}", (variant.name, _BARE), rate, bound=bound)
    if in_memory is not None:
        pair = (variant.name, in_memory.name)
        section.compare(run, f"rate, {way}: SQLite / memory", pair, rate, bound=bound)
    if variant.load_ms:
        name = f"CPU of the load for each write, {way}"
        section.holdings.append(Holding(name, median(variant.load_ms), "ms"))


def _over_both(run: InterleavedRun, served: str) -> Ratio | None:
    """What a write through the service takes, in CPU of the store and of the messages added together."""
    met = [bursts for bursts in run.rounds if {served, _BARE, _MESSAGES} <= bursts.keys()]
    ratios = paired_ratios(
        [bursts[served].cpu_ms for bursts in met],
        [bursts[_BARE].cpu_ms + bursts[_MESSAGES].cpu_ms for bursts in met],
    )
    return Ratio(quantile(ratios, 0.5), min(ratios), max(ratios), len(ratios)) if ratios else None


async def _latencies(bench: Bench) -> list[Section]:
    effort = bench.effort.durable
    variants = [HandlerCancels(_CANCEL, effort.latencies), ApprovalWakes(_WAKE, effort.latencies)]
    run = await bench.session.run(variants, rounds=1, seconds=effort.latency_seconds)
    return [
        _latency_section(
            run,
            _CANCEL,
            "Cancel: from the owner's call until the running handler is cancelled",
            plan.CANCEL_MS,
        ),
        _latency_section(
            run,
            _WAKE,
            "Approval: from the decision until the suspended task's handler runs again",
            plan.WAKE_MS,
        ),
    ]


def _latency_section(run: InterleavedRun, name: str, title: str, most: float) -> Section:
    section = Section(title, name, latency_only=True)
    section.notes = ["one task at a time on SQLite; all parties by the client library", _load_note()]
    section.add(run, [name])
    found = [latency for burst in run.bursts(name) for latency in burst.latencies_ms]
    if found:
        section.holdings.append(Holding("p99", quantile(found, 0.99), "ms", most))
        section.holdings.append(Holding("longest", max(found), "ms"))
    return section


def _load_note() -> str:
    return f"load average when it began: {os.getloadavg()[0]:.1f}"
