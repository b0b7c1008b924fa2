"""Measures the published relay alone: python -m bench.peer_relay [--quick] [--json FILE]."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import click
import uvloop
from rich.console import Console

from bench.peer_relay import plan
from bench.peer_relay.installation import Installer
from bench.placement import on_load_core, raise_open_file_limit
from bench.report import Report, Section
from bench.session import Session
from bench.tables import print_report

Workload = Callable[[Session, Installer, plan.Effort], Awaitable[Section]]


async def jobs(session: Session, installer: Installer, effort: plan.Effort) -> Section:
    section = Section("Full job cycle: 16 sites, 16 devices, answers as long as prompts", "job")
    section.notes = [
        "a job and its result are forgotten 3 s after it is enqueued; until then each collection sends all",
        "site and device call in lockstep, so no poll is in vain",
    ]
    variants = plan.job_variants(installer)
    await session.measure(section, variants, rounds=effort.job_rounds, seconds=effort.job_seconds)
    return section


async def heartbeats(session: Session, installer: Installer, effort: plan.Effort) -> Section:
    section = Section("Heartbeats, one every 10 s from each device", "heartbeat")
    section.notes = [
        "busy devices run a job each and renew its lease",
        "failed: not answered within 5 s of the end of the burst",
    ]
    for fleet in effort.fleets:
        # One after the other: what thousands of open connections cost must not fall on another variant.
        variant = plan.heartbeat_variant(installer, fleet)
        rounds, seconds = effort.heartbeat_rounds, effort.heartbeat_seconds
        await session.measure(section, [variant], rounds=rounds, seconds=seconds)
    return section


async def cancels(session: Session, installer: Installer, effort: plan.Effort) -> Section:
    title = "Cancel: from the answer to the site's call until the device knows"
    section = Section(title, "cancel", latency_only=True)
    section.notes = [f"cancelled at ages of 0 to {effort.cancel_span:.0f} s, {effort.cancel_daemons} devices"]
    await session.measure(
        section, [plan.cancel_variant(installer, effort)], rounds=1, seconds=effort.cancel_span
    )
    return section


WORKLOADS: Mapping[str, Workload] = {"jobs": jobs, "heartbeats": heartbeats, "cancels": cancels}


async def measure(effort: plan.Effort, workloads: Sequence[str], console: Console) -> Report:
    """Installs the peer where needed and puts it to these workloads, one after the other."""
    installer = Installer()
    with console.status("installing the published relay"):
        missing = await installer.prepare()
    session = Session(console)
    report = Report("The published relay", {"installed": missing or (await installer.installation()).version})
    with on_load_core() as apart:
        report.machine["server and load on cores of their own"] = "yes" if apart else "no"
        report.sections = [await WORKLOADS[name](session, installer, effort) for name in workloads]
    report.machine["speed of this machine varied by"] = f"±{session.steadiness.spread:.0%}"
    return report


@click.command()
@click.option("--quick", "effort", flag_value=plan.QUICK, help="About 1.5 minutes instead of 6.")
@click.option("--full", "effort", flag_value=plan.FULL, default=True, help="About 6 minutes; the default.")
@click.option("--only", "workloads", multiple=True, type=click.Choice(list(WORKLOADS)))
@click.option(
    "--json", "path", type=click.Path(dir_okay=False, path_type=Path), help="Also write figures here."
)
def main(effort: plan.Effort, workloads: tuple[str, ...], path: Path | None) -> None:
    """Measures the published relay alone."""
    console = Console()
    raise_open_file_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        report = runner.run(measure(effort, workloads or list(WORKLOADS), console))
    print_report(report, console)
    if path is not None:
        path.write_bytes(report.to_json())


if __name__ == "__main__":
    main()
