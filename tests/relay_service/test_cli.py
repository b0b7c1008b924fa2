import subprocess
import sys
import types
from pathlib import Path

import click
import pytest

from relay_service.cli import relay_service
from relay_service.config import RelaySettings, variable_of
from relay_service.projection_file import load_projection
from service_common.durations import Duration, show_duration
from service_common.errors import SettingsError
from service_common.settings import flag_of
from tests.relay_service.command_runs import Run, run_command

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run() -> Run:
    return run_command


@pytest.fixture
def file(tmp_path: Path, run: Run) -> Path:
    file = tmp_path / "projection.json"
    assert run("projection", "new", file).exit_code == 0
    return file


class TestHelp:
    def test_every_command_has_help_that_tells_its_exit_status(self, run: Run) -> None:
        def walk(command: click.Command, path: tuple[str, ...]) -> None:
            result = run(*path, "--help")
            assert result.exit_code == 0
            if path != ("version",):
                assert "Exit status" in result.output, path
            if isinstance(command, click.Group):
                context = click.Context(command)
                for name in command.list_commands(context):
                    found = command.get_command(context, name)
                    assert found is not None
                    walk(found, (*path, name))

        walk(relay_service, ())

    def test_there_is_an_option_for_every_setting(self, run: Run) -> None:
        output = " ".join(run("serve", "--help").output.split())

        for field in RelaySettings.model_fields:
            assert f"{flag_of(field)} " in output
            assert f"[{variable_of(field)}" in output

    def test_defaults_are_shown_with_their_unit(self, run: Run) -> None:
        output = " ".join(run("serve", "--help").output.split())

        assert "[RELAY_LISTEN; default 127.0.0.1:7433]" in output
        assert "[RELAY_LEASE_MS; default 1m]" in output
        assert "[RELAY_STREAM_AGE_SECONDS; default 30m]" in output
        assert "[RELAY_PROJECTION]" in output

    def test_an_unknown_command(self, run: Run) -> None:
        result = run("serv")

        assert result.exit_code == 2
        assert "No such command 'serv'" in result.stderr

    def test_the_version(self, run: Run) -> None:
        assert run("version").output.startswith("sealwork")


class TestServing:
    @pytest.fixture
    def served(self, monkeypatch: pytest.MonkeyPatch) -> list[RelaySettings]:
        served: list[RelaySettings] = []

        def serve(settings: RelaySettings) -> int:
            served.append(settings)
            if settings.server_instance == "unlucky":
                raise SettingsError("cannot listen on 127.0.0.1:7433: the port is taken")
            if settings.projection is not None:
                load_projection(settings.projection)
            return 3

        process = types.ModuleType("relay_service.process")
        process.run = serve  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "relay_service.process", process)
        return served

    def test_flags_become_settings(self, run: Run, served: list[RelaySettings], file: Path) -> None:
        result = run(
            "serve", "--dev", "--listen", "127.0.0.1:0", "--projection", file, "--lease", "90s",
            "--heartbeat", "500ms", "--liveness", "2m", "--log-format", "JSON",
        )  # fmt: skip

        assert result.exit_code == 3
        (settings,) = served
        assert settings.dev
        assert (settings.listen, settings.projection) == ("127.0.0.1:0", file)
        assert (settings.lease_ms, settings.heartbeat_seconds, settings.liveness_seconds) == (
            90_000,
            0.5,
            120,
        )
        assert settings.log_format == "json"

    def test_flags_go_before_the_environment(
        self, run: Run, served: list[RelaySettings], file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RELAY_DEV", "1")
        monkeypatch.setenv("RELAY_LEASE_MS", "5000")
        monkeypatch.setenv("RELAY_PROJECTION", str(file))

        run("serve", "--no-dev", "--lease", "6s")

        assert [(each.dev, each.lease_ms, each.projection) for each in served] == [(False, 6000, file)]

    @pytest.mark.parametrize(
        ("flags", "line"),
        [
            (
                ("--dev", "--lease", "1ms"),
                "Error: --lease: must be greater than or equal to 1000 milliseconds",
            ),
            (
                ("--dev", "--server-instance", "unlucky"),
                "Error: cannot listen on 127.0.0.1:7433: the port is taken",
            ),
            (
                ("--dev", "--projection", "/nowhere/p.json"),
                "Error: /nowhere/p.json: cannot be read: No such file or directory",
            ),
        ],
    )
    def test_what_keeps_it_from_starting(
        self, run: Run, served: list[RelaySettings], flags: tuple[str, ...], line: str
    ) -> None:
        result = run("serve", *flags)

        assert result.exit_code == 2
        assert result.stderr == f"{line}\n"
        assert result.stdout == ""

    def test_a_duration_without_a_unit(self, run: Run) -> None:
        result = run("serve", "--dev", "--lease", "60")

        assert result.exit_code == 2
        assert result.stderr.splitlines()[-1] == (
            "Error: Invalid value for '--lease': '60' is not a duration: write a number with its unit, "
            "as 1500ms, 60s, 5m, 1h or 7d"
        )


class TestCheckConfig:
    def test_effective_settings_are_printed_as_variables(self, run: Run, file: Path) -> None:
        result = run("check-config", "--projection", file, "--lease", "5m", "--store", "memory:")

        assert result.exit_code == 0
        lines = result.stdout.splitlines()
        assert len(lines) == len(RelaySettings.model_fields)
        assert lines[0] == "RELAY_LISTEN=127.0.0.1:7433"
        assert f"RELAY_PROJECTION={file}" in lines
        assert "RELAY_LEASE_MS=300000" in lines
        assert "RELAY_METRICS_LISTEN=" in lines

    def test_what_is_wrong_goes_to_standard_error(
        self, run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RELAY_STOR", "x")
        result = run("check-config", "--projection", file)

        assert (result.exit_code, result.stdout) == (2, "")
        assert (
            result.stderr == "Error: RELAY_STOR: is not a setting of the relay; did you mean RELAY_STORE?\n"
        )

    def test_the_projection_is_checked_too(self, run: Run, file: Path) -> None:
        file.write_text('{"consents":\n 1}')
        result = run("check-config", "--projection", file)

        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"Error: {file}:1: consents: must be a list, not a number\n"


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("1500ms", 1500), ("60s", 60_000), ("0.5s", 500), ("1.5m", 90_000), ("2h", 7_200_000)],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert Duration(milliseconds=True).convert(text, None, None) == milliseconds
    assert Duration(milliseconds=False).convert(text, None, None) == milliseconds / 1000


@pytest.mark.parametrize("text", ["", "60", "s", "-1s", "1 s x", "1e3s", "0.5ms", "1w", "٣s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Duration(milliseconds=True).convert(text, None, None)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(500, "500ms"), (1500, "1500ms"), (45_000, "45s"), (60_000, "1m"), (7_200_000, "2h")],
)
def test_durations_are_shown(milliseconds: float, text: str) -> None:
    assert show_duration(milliseconds) == text


_LOADED = """
import sys
import relay_service.commands.projection, relay_service.commands.serve, relay_service.cli
private = ("relay_service.client", "nacl.public", "nacl.signing", "nacl.secret", "service_common.signing")
print(*sorted(name for name in sys.modules if name.startswith(private)))
"""
_LOADED_FOR_EDITS = """
import sys
from click.testing import CliRunner
from relay_service.cli import relay_service
CliRunner().invoke(relay_service, ["projection", "new", "/nowhere/p.json"])
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"grpc", "pydantic", "rich"}))
"""


@pytest.mark.parametrize("program", [_LOADED, _LOADED_FOR_EDITS])
def test_what_the_commands_load(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == ""


def test_it_runs_as_a_module(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "relay_service", "projection", "check", str(tmp_path / "p.json")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr
