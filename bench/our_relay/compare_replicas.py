"""Two relays on one Valkey server against one relay with everything in its memory."""

import os
from collections.abc import AsyncIterator

from bench.figures import cpu_ms, rate
from bench.our_relay.drain import Backlog, Drain
from bench.our_relay.jobs import QUIET, OurSessionJobs
from bench.our_relay.server import OurServer
from bench.our_relay.two_relays import TwoRelays
from bench.our_relay.workbench import Bench
from bench.peer_relay.pair import JobLoad
from bench.report import Holding, Section
from bench.variant import Variant

ONE, TWO = "one relay, memory", "two relays, Valkey"
_DRAIN_SECONDS = 240.0
_BURST_NOTE = "sites at one relay, devices at the other; both and the Valkey server share one core"


async def replicas(bench: Bench) -> AsyncIterator[Section]:
    for in_flight in (1, 4):
        yield await _replicas(bench, in_flight)


async def _replicas(bench: Bench, in_flight: int) -> Section:
    load = JobLoad(1024, in_flight=in_flight)
    title = f"Full job cycle, {load.workers} devices, 1 KiB, {in_flight} in flight: {ONE} and {TWO}"
    section = Section(title, "job", notes=[_BURST_NOTE, _load_note()])
    variants = [
        OurSessionJobs(ONE, load),
        OurSessionJobs(TWO, load, server=TwoRelays(*QUIET)),
    ]
    effort = bench.effort
    run = await bench.session.measure(section, variants, rounds=effort.job_rounds, seconds=effort.job_seconds)
    section.compare(run, f"server CPU a job, {TWO} / {ONE}", (TWO, ONE), cpu_ms)
    section.compare(run, f"jobs a second, {TWO} / {ONE}", (TWO, ONE), rate)
    return section


async def drain(bench: Bench) -> AsyncIterator[Section]:
    backlog = Backlog()
    section = Section(f"Draining {backlog.jobs:,} queued jobs, {backlog.devices} devices on streams", "job")
    section.notes = [
        "latencies: from the devices' first offer until the site has opened and checked the answer",
        f"{backlog.sites} sites; each device runs {backlog.slots} at a time; 1 KiB each way",
        _BURST_NOTE,
        _load_note(),
    ]
    variants: list[Variant] = [
        Drain(ONE, OurServer(*QUIET), backlog),
        Drain(TWO, TwoRelays(*QUIET), backlog),
    ]
    run = await bench.session.measure(section, variants, rounds=bench.effort.drains, seconds=_DRAIN_SECONDS)
    for variant in variants:
        for burst in run.bursts(variant.name):
            section.holdings.append(Holding(f"time to drain, {variant.name}", burst.elapsed_seconds, "s"))
    section.compare(run, f"server CPU a job, {TWO} / {ONE}", (TWO, ONE), cpu_ms)
    section.compare(run, f"jobs a second, {TWO} / {ONE}", (TWO, ONE), rate)
    yield section


def _load_note() -> str:
    return f"load average when it began: {os.getloadavg()[0]:.1f}"
