import asyncio
import io
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner
from rich.console import Console

import bench.__main__ as command
from bench.our_relay import plan
from bench.our_relay.workbench import Bench
from bench.peer_relay.installation import Installer
from bench.report import Report, Section

Asked = tuple[plan.Effort, Sequence[str], Installer | None]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Asked]:
    found: list[Asked] = []

    async def measure(
        effort: plan.Effort, workloads: Sequence[str], installer: Installer | None, console: Console
    ) -> Report:
        found.append((effort, workloads, installer))
        return Report("Bench", {"cores": 2}, [Section("Jobs", "job")])

    monkeypatch.setattr(command, "measure", measure)
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results")
    monkeypatch.delenv("FULL", raising=False)
    return found


def run(*arguments: str, **variables: str) -> str:
    result = CliRunner().invoke(command.main, arguments, env=variables)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    ("arguments", "variables", "effort"),
    [
        ((), {}, plan.QUICK),
        (("--full",), {}, plan.FULL),
        ((), {"FULL": "1"}, plan.FULL),
        (("--quick",), {"FULL": "1"}, plan.QUICK),
    ],
)
def test_a_quick_run_is_the_default(
    asked: list[Asked], arguments: tuple[str, ...], variables: dict[str, str], effort: plan.Effort
) -> None:
    run(*arguments, **variables)
    assert asked[0][0] is effort


def test_workloads_and_the_peer_can_be_left_out(asked: list[Asked]) -> None:
    run()
    run("--only", "latencies", "--only", "jobs", "--no-peer")
    alone = ["stores", "replicas", "drain", "durable", "databases"]
    assert list(asked[0][1]) == ["jobs", "renewals", "latencies", *alone]
    assert asked[0][2] is not None
    assert list(asked[1][1]) == ["latencies", "jobs"]
    assert asked[1][2] is None


def test_the_figures_are_written_as_well(asked: list[Asked], tmp_path: Path) -> None:
    output = run()
    (path,) = (tmp_path / "results").iterdir()
    assert path.name in output.replace("\n", "")
    assert orjson.loads(path.read_bytes())["sections"][0]["title"] == "Jobs"


def test_an_unknown_workload_is_refused() -> None:
    assert CliRunner().invoke(command.main, ["--only", "everything"]).exit_code == 2


async def test_each_section_is_shown_before_the_next_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    page = io.StringIO()
    shown: list[str] = []

    async def two(_bench: Bench) -> AsyncIterator[Section]:
        yield Section("First table", "job")
        shown.append(page.getvalue())
        yield Section("Second table", "job")

    monkeypatch.setattr(command, "WORKLOADS", {"two": two})
    try:
        report = await command.measure(plan.QUICK, ["two"], None, Console(file=page))
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
    assert ["First table" in text for text in shown] == [True]
    assert "Second table" in page.getvalue()
    assert [section.title for section in report.sections] == ["First table", "Second table"]
