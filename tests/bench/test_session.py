import io

import pytest
from rich.console import Console

from bench import session
from bench.session import Session


def test_where_there_is_no_terminal_a_line_now_and_then_goes_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([100.0, 100.0, 114.9, 115.0, 129.0, 145.0])
    monkeypatch.setattr(session, "monotonic", lambda: next(times))
    tables = io.StringIO()
    sitting = Session(Console(file=tables))
    with sitting.progress() as progress:
        progress("starting [one]")
        progress("round 0 of 2")
        progress("round 1 of 2")
    with sitting.progress() as progress:
        progress("another workload")
        progress("round 2 of 2")
    assert capsys.readouterr().err == "0 s: starting [one]\n15 s: round 1 of 2\n45 s: round 2 of 2\n"
    assert tables.getvalue() == ""


def test_on_a_terminal_the_line_is_shown_in_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = io.StringIO()
    with Session(Console(file=terminal, force_terminal=True)).progress() as progress:
        progress("round 1 of 2")
    assert "round 1 of 2" in terminal.getvalue()
    assert capsys.readouterr().err == ""
