"""Measures this project, by itself and against the published relay: see `python -m bench --help`."""

import asyncio
import gc
import os
import platform
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import click
import uvloop
from rich.console import Console

from bench.our_relay import plan
from bench.our_relay.workbench import Bench
from bench.our_relay.workloads import WORKLOADS
from bench.peer_relay.installation import Installer
from bench.placement import on_load_core, raise_open_file_limit
from bench.report import Report
from bench.session import Session
from bench.tables import print_report, print_section

RESULTS = Path(__file__).parent / "results"
# Where there is no terminal whose width could be asked for.
_PAPER_COLUMNS = 120


async def measure(
    effort: plan.Effort, workloads: Sequence[str], installer: Installer | None, console: Console
) -> Report:
    """Runs these workloads one after the other, and shows each section as soon as it is measured."""
    _stop_in_order_when_terminated()
    report = Report("Our services and the published relay", _machine())
    session = Session(console)
    report.machine["published relay"] = await _prepare(installer, session)
    bench = Bench(session, effort, installer, raise_open_file_limit())
    with on_load_core() as apart:
        report.machine["server and load on cores of their own"] = "yes" if apart else "no"
        for name in workloads:
            async for section in WORKLOADS[name](bench):
                report.sections.append(section)
                print_section(section, console)
    report.machine["load of the machine after the run"] = round(os.getloadavg()[0], 2)
    report.machine["speed of this machine varied by"] = f"±{session.steadiness.spread:.0%}"
    return report


def _stop_in_order_when_terminated() -> None:
    task = asyncio.current_task()
    assert task is not None
    # Cancelled, it stops every server on its way out; killed, it would leave them behind.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def _machine() -> dict[str, str | int | float]:
    return {
        "cores": os.cpu_count() or 1,
        "load of the machine before the run": round(os.getloadavg()[0], 2),
        "Python": platform.python_version(),
        "gRPC": version("grpcio"),
    }


async def _prepare(installer: Installer | None, session: Session) -> str:
    if installer is None:
        return "left out"
    with session.progress() as progress:
        progress("installing the published relay")
        missing = await installer.prepare()
    return f"not installed: {missing}" if missing else (await installer.installation()).version


@click.command()
@click.option("--full/--quick", envvar="FULL", help="Over an hour instead of about 25 minutes, the default.")
@click.option("--only", "workloads", multiple=True, type=click.Choice(list(WORKLOADS)))
@click.option("--no-peer", is_flag=True, help="Leave out the published relay, and with it all comparisons.")
def main(*, full: bool, workloads: tuple[str, ...], no_peer: bool) -> None:
    """Measures our services and their stores, and writes the figures to bench/results as well."""
    console = Console(width=None if sys.stdout.isatty() else _PAPER_COLUMNS)
    # With thousands of streams in this process, collections at the default pace would show in the latencies.
    gc.set_threshold(10_000, 50, 1_000)
    effort = plan.FULL if full else plan.QUICK
    installer = None if no_peer else Installer()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            report = runner.run(measure(effort, workloads or list(WORKLOADS), installer, console))
    except asyncio.CancelledError:
        raise click.ClickException("stopped by a signal; every server that was started has ended") from None
    # The sections have been shown already, each as soon as it was there.
    print_report(Report(report.title, report.machine), console)
    console.print(f"\nwritten to {_write(report)}")


def _write(report: Report) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    path.write_bytes(report.to_json())
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


if __name__ == "__main__":
    main()
