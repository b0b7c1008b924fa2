import io

import orjson
import pytest
from rich.console import Console

from bench.figures import cpu_ms
from bench.interleaving import InterleavedRun, Ratio
from bench.operation_costs import operation_cost
from bench.report import Comparison, Report, Section, Verdict, summarize
from bench.tables import figure_text, print_report
from bench.variant import BurstResult


def two_rounds() -> InterleavedRun:
    first = {
        "peer": BurstResult(100, [4.0] * 100, 0.6, 1024, 1.0),
        "ours": BurstResult(100, [1.0] * 100, 0.15, 2048, 1.0),
    }
    second = {
        "peer": BurstResult(200, [8.0] * 200, 1.0, 4096, 1.0, failures=3),
        "ours": BurstResult(300, [], 0.5, 2048, 1.0),
    }
    return InterleavedRun([first, second], {"third": "npm is missing"})


def filled_section() -> Section:
    section = Section("Full job cycle", "job", notes=["read with care"])
    run = two_rounds()
    section.add(run, ["peer", "ours", "third"])
    section.compare(run, "server CPU a job, peer to ours", ("peer", "ours"), cpu_ms, bound=3.0, stretch=4.4)
    section.compare(run, "never met", ("peer", "third"), cpu_ms)
    return section


def test_a_summary_takes_medians_of_bursts_and_quantiles_of_all_operations() -> None:
    summary = summarize("peer", two_rounds().bursts("peer"))
    assert (summary.bursts, summary.operations, summary.failures) == (2, 300, 3)
    assert summary.rate == 150.0
    assert summary.cpu_ms == pytest.approx(5.5)
    assert (summary.p50_ms, summary.p99_ms) == (8.0, 8.0)
    assert summary.cores == pytest.approx(0.8)
    assert summary.rss_kib == 4096


@pytest.mark.parametrize(
    ("median", "bound", "stretch", "verdict"),
    [
        (2.9, 3.0, 4.4, Verdict.MISSED),
        (3.0, 3.0, 4.4, Verdict.MET),
        (4.4, 3.0, 4.4, Verdict.STRETCH),
        (9.0, 3.0, None, Verdict.MET),
        (9.0, None, None, Verdict.NO_GOAL),
    ],
)
def test_verdicts(median: float, bound: float | None, stretch: float | None, verdict: Verdict) -> None:
    assert Comparison("x", Ratio(median, median, median, 1), bound, stretch).verdict is verdict


@pytest.mark.parametrize(
    ("median", "verdict"), [(1.1, Verdict.MET), (2.0, Verdict.MET), (2.1, Verdict.MISSED)]
)
def test_a_ratio_may_be_better_when_it_is_small(median: float, verdict: Verdict) -> None:
    assert Comparison("x", Ratio(median, median, median, 1), most=2.0).verdict is verdict


def test_a_section_holds_what_was_measured_compared_and_missing() -> None:
    section = filled_section()
    assert [summary.variant for summary in section.summaries] == ["peer", "ours"]
    assert section.absent == {"third": "npm is missing"}
    (comparison,) = section.comparisons
    assert comparison.ratio.median == pytest.approx(3.5)
    assert comparison.verdict is Verdict.MET


def test_the_json_form_has_verdicts_and_null_for_what_does_not_exist() -> None:
    section = Section("Idle", "job")
    section.add(InterleavedRun([{"idle": BurstResult(0, [], 0.1, 1, 1.0)}]), ["idle"])
    report = Report("Bench", {"cores": 2}, [filled_section(), section])
    document = orjson.loads(report.to_json())
    assert document["machine"] == {"cores": 2}
    assert document["sections"][0]["comparisons"][0]["verdict"] == "met"
    assert document["sections"][0]["absent"] == {"third": "npm is missing"}
    assert document["sections"][1]["summaries"][0]["p50_ms"] is None
    assert document["sections"][1]["summaries"][0]["cpu_ms"] is None


def test_the_printed_form_shows_figures_goals_and_what_is_missing() -> None:
    console = Console(file=io.StringIO(), width=120)
    print_report(Report("Bench", {"cores": 2}, [filled_section()]), console)
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    wanted = ("Full job cycle", "3.50×", "≥ 3.00×", "met", "not measured: third: npm is missing", "with care")
    for expected in wanted:
        assert expected in printed


def test_a_section_of_latencies_alone_shows_no_costs() -> None:
    section = filled_section()
    section.latency_only = True
    console = Console(file=io.StringIO(), width=120)
    print_report(Report("Bench", {}, [section]), console)
    assert isinstance(console.file, io.StringIO)
    assert "CPU ms" not in console.file.getvalue()


def test_costs_of_operations_are_printed_and_written() -> None:
    section = Section("Store: memory", "operation")
    section.operations = [operation_cost(1_000, "claim", [1.0, 2.0, 9.0], [400.0, 600.0], [0.25, 0.75])]
    section.comparisons = [Comparison("claim with 10,000 / with 1,000", Ratio(1.25, 1.0, 1.5, 3), most=2.0)]
    console = Console(file=io.StringIO(), width=120)
    print_report(Report("Bench", {}, [section]), console)
    assert isinstance(console.file, io.StringIO)
    for expected in ("1,000", "claim", "500", "2.00", "9.00", "1.25×", "≤ 2.00×"):
        assert expected in console.file.getvalue()
    (written,) = orjson.loads(Report("Bench", {}, [section]).to_json())["sections"]
    assert written["operations"] == [
        {
            "queued": 1000,
            "operation": "claim",
            "samples": 3,
            "rate": 500.0,
            "cpu_ms": 0.5,
            "p50_ms": 2.0,
            "p99_ms": pytest.approx(8.86),
            "longest_ms": 9.0,
        }
    ]
    assert written["comparisons"][0]["verdict"] == "met"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (0.0123, "0.012"), (1.5, "1.50"), (15.25, "15.2"), (151.4, "151"), (12345.6, "12,346"),
        (float("nan"), "–"), (float("inf"), "–"),
    ],
)  # fmt: skip
def test_figures_are_short(value: float, text: str) -> None:
    assert figure_text(value) == text
