import io

import orjson
import pytest
from rich.console import Console

from bench.report import Holding, Report, Section, Verdict
from bench.tables import print_section


@pytest.mark.parametrize(
    ("value", "most", "verdict"),
    [
        (99.9, 100.0, Verdict.MET),
        (100.0, 100.0, Verdict.MET),
        (100.1, 100.0, Verdict.MISSED),
        (float("nan"), 100.0, Verdict.MISSED),
        (1.0, None, Verdict.NO_GOAL),
    ],
)
def test_a_figure_is_held_against_what_it_may_be(value: float, most: float | None, verdict: Verdict) -> None:
    assert Holding("x", value, "ms", most).verdict is verdict


def test_holdings_are_printed_and_written_with_their_verdicts() -> None:
    section = Section("Cancels", "cancel", holdings=[Holding("p99", 2.5, "ms", 20.0)])
    console = Console(file=io.StringIO(), width=120)
    print_section(section, console)
    assert isinstance(console.file, io.StringIO)
    for expected in ("p99", "2.50 ms", "≤ 20.0 ms", "met"):
        assert expected in console.file.getvalue()
    (written,) = orjson.loads(Report("Bench", {}, [section]).to_json())["sections"]
    assert written["holdings"] == [
        {"name": "p99", "value": 2.5, "unit": "ms", "most": 20.0, "verdict": "met"}
    ]
