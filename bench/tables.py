"""Prints a report as tables."""

from math import isfinite

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.deployment_costs import DeploymentCost
from bench.report import Comparison, Holding, Report, Section, Summary, Verdict

_STYLES = {
    Verdict.STRETCH: "bold green",
    Verdict.MET: "green",
    Verdict.MISSED: "bold red",
    Verdict.NO_GOAL: "dim",
}


def print_report(report: Report, console: Console) -> None:
    console.rule(f"[bold]{escape(report.title)}")
    for name, value in report.machine.items():
        console.print(f"[dim]{escape(name)}:[/] {value}")
    for section in report.sections:
        print_section(section, console)


def print_section(section: Section, console: Console) -> None:
    # Printed apart: the title of a table wraps at the width of the table.
    console.print(f"\n[bold]{escape(section.title)}")
    if section.summaries:
        console.print(_measurements(section))
    if section.operations:
        console.print(_operations(section))
    if section.deployments:
        console.print(_deployments(section.deployments))
    if section.comparisons:
        console.print(_comparisons(section.comparisons))
    if section.holdings:
        console.print(_holdings(section.holdings))
    for variant, reason in section.absent.items():
        console.print(f"[bold yellow]not measured:[/] {escape(variant)}: {escape(reason)}")
    for note in section.notes:
        console.print(f"[dim]· {escape(note)}[/]")


def figure_text(value: float, digits: int = 3) -> str:
    """A figure with about this many significant digits, no exponent; a dash if there is none."""
    if not isfinite(value):
        return "–"
    if value == 0:
        return "0"
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    return f"{value:,.{max(0, digits - whole)}f}"


def _measurements(section: Section) -> Table:
    table = Table()
    table.add_column("variant")
    for heading in (f"{section.operation}s", "failed", "p50 ms", "p99 ms"):
        table.add_column(heading, justify="right")
    if not section.latency_only:
        table.caption = f"CPU ms, cores and MiB are the server's; CPU ms is for one {section.operation}"
        for heading in ("a second", "CPU ms", "cores", "MiB"):
            table.add_column(heading, justify="right")
    for summary in section.summaries:
        cells = _latency_cells(summary) + ([] if section.latency_only else _cost_cells(summary))
        table.add_row(escape(summary.variant), *cells)
    return table


def _latency_cells(summary: Summary) -> list[str]:
    failed = f"[bold red]{summary.failures:,}[/]" if summary.failures else "0"
    return [f"{summary.operations:,}", failed, figure_text(summary.p50_ms), figure_text(summary.p99_ms)]


def _cost_cells(summary: Summary) -> list[str]:
    figures = (summary.rate, summary.cpu_ms, summary.cores, summary.rss_kib / 1024)
    return [figure_text(figure) for figure in figures]


def _operations(section: Section) -> Table:
    table, costs = Table(), section.operations
    for heading in (
        section.amount,
        "operation",
        "timed",
        "a second",
        "CPU ms",
        "p50 ms",
        "p99 ms",
        "longest ms",
    ):
        table.add_column(heading, justify="left" if heading == "operation" else "right")
    for cost, following in zip(costs, [*costs[1:], None], strict=True):
        figures = (cost.rate, cost.cpu_ms, cost.p50_ms, cost.p99_ms, cost.longest_ms)
        table.add_row(
            f"{cost.queued:,}",
            escape(cost.operation),
            f"{cost.samples:,}",
            *(figure_text(figure) for figure in figures),
            end_section=following is not None and following.queued != cost.queued,
        )
    return table


def _deployments(costs: list[DeploymentCost]) -> Table:
    table = Table(caption="service, database, load and idle are cores")
    for heading in ("deployment", "workers", "operation", "timed", "a second", "p50 ms", "p99 ms"):
        table.add_column(heading, justify="left" if heading in {"deployment", "operation"} else "right")
    for heading in ("service", "database", "load", "idle"):
        table.add_column(heading, justify="right")
    table.add_column("limit")
    for cost, following in zip(costs, [*costs[1:], None], strict=True):
        cores = (cost.service_cores, cost.database_cores, cost.load_cores, cost.idle_cores)
        table.add_row(
            escape(cost.deployment),
            f"{cost.workers}",
            escape(cost.operation),
            f"{cost.samples:,}",
            *(figure_text(figure) for figure in (cost.rate, cost.p50_ms, cost.p99_ms)),
            *(f"{share:.2f}" for share in cores),
            escape(cost.limit),
            end_section=following is not None and following.deployment != cost.deployment,
        )
    return table


def _comparisons(comparisons: list[Comparison]) -> Table:
    table = Table()
    table.add_column("comparison (median of paired ratios)")
    for heading in ("ratio", "least to greatest", "goal", "stretch"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for comparison in comparisons:
        ratio = comparison.ratio
        table.add_row(
            escape(comparison.name),
            f"[bold]{figure_text(ratio.median)}×[/]",
            f"{figure_text(ratio.low)} to {figure_text(ratio.high)}",
            _goal_text(comparison),
            _least_text(comparison.stretch),
            f"[{_STYLES[comparison.verdict]}]{comparison.verdict}[/]",
        )
    return table


def _holdings(holdings: list[Holding]) -> Table:
    table = Table()
    table.add_column("figure")
    for heading in ("value", "goal"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for holding in holdings:
        table.add_row(
            escape(holding.name),
            f"[bold]{figure_text(holding.value)} {holding.unit}[/]",
            "" if holding.most is None else f"≤ {figure_text(holding.most)} {holding.unit}",
            f"[{_STYLES[holding.verdict]}]{holding.verdict}[/]",
        )
    return table


def _goal_text(comparison: Comparison) -> str:
    if comparison.most is not None:
        return f"≤ {figure_text(comparison.most)}×"
    return _least_text(comparison.bound)


def _least_text(goal: float | None) -> str:
    return "" if goal is None else f"≥ {figure_text(goal)}×"
