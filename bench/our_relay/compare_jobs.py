"""Full job cycles on both relays: which variants there are, and what is compared."""

from collections.abc import AsyncIterator

from bench.figures import cpu_ms, rate
from bench.interleaving import InterleavedRun
from bench.our_relay import plan
from bench.our_relay.jobs import OurSessionJobs, OurUnaryJobs
from bench.our_relay.workbench import Bench
from bench.peer_relay.jobs import PeerJobs
from bench.report import Section
from bench.variant import Variant

SESSIONS, ONE_SITE, UNARY = "ours, sessions", "ours, sessions, one site", "ours, unary"


async def jobs(bench: Bench) -> AsyncIterator[Section]:
    for job_plan in plan.JOBS:
        yield await _jobs(bench, job_plan)


async def _jobs(bench: Bench, job_plan: plan.JobPlan) -> Section:
    load = job_plan.load
    section = Section(f"Full job cycle, {load.workers} devices, {job_plan.title}", "job")
    section.notes = [
        "sealed to the device, answered with as much text, opened and checked by the site, settled",
        "one site for each device, as in the peer's load, unless it says one site",
    ]
    variants: list[Variant] = [
        OurSessionJobs(SESSIONS, load),
        OurSessionJobs(ONE_SITE, load, sites=1),
        OurUnaryJobs(UNARY, load),
    ]
    if bench.installer is not None:
        variants.insert(0, PeerJobs(job_plan.peer_name, bench.installer, load))
    effort = bench.effort
    run = await bench.session.measure(section, variants, rounds=effort.job_rounds, seconds=effort.job_seconds)
    _compare_jobs(section, run, job_plan)
    return section


def _compare_jobs(section: Section, run: InterleavedRun, job_plan: plan.JobPlan) -> None:
    peer, (bound, stretch) = job_plan.peer_name, job_plan.goals.cpu
    section.compare(
        run, "server CPU a job, peer / ours", (peer, SESSIONS), cpu_ms, bound=bound, stretch=stretch
    )
    bound, stretch = job_plan.goals.rate
    section.compare(run, "jobs a second, ours / peer", (SESSIONS, peer), rate, bound=bound, stretch=stretch)
    section.compare(run, "server CPU a job, peer / ours with one site", (peer, ONE_SITE), cpu_ms)
    section.compare(run, "jobs a second, ours with one site / peer", (ONE_SITE, peer), rate)
    section.compare(run, "server CPU a job, peer / ours by unary calls", (peer, UNARY), cpu_ms)
    section.compare(run, "server CPU a job, our unary calls / our sessions", (UNARY, SESSIONS), cpu_ms)
