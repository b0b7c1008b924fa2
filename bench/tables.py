"""Prints a report as tables."""

from math import isfinite

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.report import Comparison, Report, Section, Verdict

_STYLES = {
    Verdict.STRETCH: "bold green",
    Verdict.MET: "green",
    Verdict.MISSED: "bold red",
    Verdict.NO_GOAL: "dim",
}


def print_report(report: Report, console: Console) -> None:
    console.rule(f"[bold]{escape(report.title)}")
    console.print("  ".join(f"[dim]{escape(name)}[/] {value}" for name, value in report.machine.items()))
    for section in report.sections:
        print_section(section, console)


def print_section(section: Section, console: Console) -> None:
    console.print()
    if section.summaries:
        console.print(_measurements(section))
    if section.comparisons:
        console.print(_comparisons(section.comparisons))
    for variant, reason in section.absent.items():
        console.print(f"[bold yellow]not measured:[/] {escape(variant)}: {escape(reason)}")
    for note in section.notes:
        console.print(f"[dim]· {escape(note)}[/]")


def figure_text(value: float, digits: int = 3) -> str:
    """A figure with about this many significant digits and no exponent; a dash for one that does not exist."""
    if not isfinite(value):
        return "–"
    if value == 0:
        return "0"
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    return f"{value:,.{max(0, digits - whole)}f}"


def _measurements(section: Section) -> Table:
    table = Table(title=section.title, title_justify="left", title_style="bold")
    table.add_column("variant")
    headings = (
        f"{section.operation}s", "failed", f"{section.operation}s/s", "p50 ms", "p99 ms",
        f"server CPU ms/{section.operation}", "server cores", "server MiB",
    )  # fmt: skip
    for heading in headings:
        table.add_column(heading, justify="right")
    for summary in section.summaries:
        failed = f"[bold red]{summary.failures:,}[/]" if summary.failures else "0"
        figures = (summary.rate, summary.p50_ms, summary.p99_ms, summary.cpu_ms, summary.cores)
        memory = f"{summary.rss_kib / 1024:,.0f}"
        cells = (f"{summary.operations:,}", failed, *map(figure_text, figures), memory)
        table.add_row(escape(summary.variant), *cells)
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
            _goal_text(comparison.bound),
            _goal_text(comparison.stretch),
            f"[{_STYLES[comparison.verdict]}]{comparison.verdict}[/]",
        )
    return table


def _goal_text(goal: float | None) -> str:
    return "" if goal is None else f"≥ {figure_text(goal)}×"
