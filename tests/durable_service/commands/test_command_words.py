"""What the commands make of their options, without a service."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from durable_service.cli import durable_service
from durable_service.commands.service_calls import instant, printable, span

CALLER = ("--principal", "alice", "--key", "alice.key")


def run(*words: object) -> Result:
    result = CliRunner().invoke(durable_service, [str(each) for each in words], prog_name="durable-service")
    # Whatever else is raised would be a traceback.
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_a_new_key_is_private_and_its_public_half_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "alice.key"
    made = run("keys", "new", path)
    assert made.exit_code == 0
    assert len(made.output.strip()) == 43
    assert path.stat().st_mode & 0o777 == 0o600
    assert run("keys", "show", path).output == made.output
    assert json.loads(run("keys", "show", path, "--json").output) == {"public": made.output.strip()}


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "alice.key"
    run("keys", "new", path)
    before = path.read_bytes()
    again = run("keys", "new", path)
    assert again.exit_code == 1
    assert "there is a key already" in again.output
    assert path.read_bytes() == before


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "alice.key"
    run("keys", "new", path)
    path.chmod(0o644)
    refused = run("keys", "show", path)
    assert refused.exit_code == 1
    assert "chmod 600" in refused.output


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"version":1,"public":"x","private":"y"}'])
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "alice.key"
    path.write_text(content)
    path.chmod(0o600)
    assert "not a key file of version 1" in run("keys", "show", path).output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--address", "nowhere"), "is not HOST:PORT or unix:PATH"),
        (("--address", "relay.example.org:7434"), "is another machine: add --tls"),
        (("--tls", "--plaintext"), "--plaintext cannot be given together"),
    ],
)
def test_an_address_that_cannot_be_used_is_a_wrong_option(words: tuple[str, ...], said: str) -> None:
    result = run("tasks", "list", *CALLER, *words)
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--driver", "report"), "write ID@VERSION"),
        (("--input", "{"), "the input is not JSON"),
        (("--delay", "5"), "write a number with its unit"),
    ],
)
def test_an_option_that_cannot_be_read_is_said(words: tuple[str, ...], said: str) -> None:
    result = run("tasks", "create", "t-1", *CALLER, *words)
    assert result.exit_code == 2
    assert said in result.output


def test_an_approval_whose_id_begins_with_a_hyphen_is_no_option(tmp_path: Path) -> None:
    words = (
        "approvals",
        "approve",
        "-hyQ_id",
        "--yes",
        "--principal",
        "carol",
        "--key",
        tmp_path / "none.key",
    )
    result = run(*words)
    assert result.exit_code == 1
    assert "there is no key" in result.output


@pytest.mark.parametrize("words", [(), ("--absent", "--still-unknown"), ("--absent", "--happened", "x:1")])
def test_evidence_shows_one_thing(words: tuple[str, ...]) -> None:
    result = run("actions", "settle", "t-1", "send", "--evidence", "ticket:7", *CALLER, *words)
    assert result.exit_code == 2
    assert "say one of --happened RESULT, --absent and --still-unknown" in result.output


def test_a_credential_has_to_be_given() -> None:
    result = run("tasks", "list", "--principal", "alice")
    assert result.exit_code == 2
    assert "say who calls: --key FILE" in result.output


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    certificate = tmp_path / "alice.pem"
    certificate.touch()
    result = run("tasks", "list", "--principal", "alice", "--tls-certificate", certificate)
    assert result.exit_code == 2
    assert "--tls-certificate and --tls-key go together" in result.output


def test_who_calls_has_to_be_said() -> None:
    result = run("tasks", "list")
    assert result.exit_code == 2
    assert "--principal" in result.output


def test_spans_are_read_by_people() -> None:
    assert [span(each) for each in (None, 0, 250, 1_999, 60_000, 61_000, 3_600_000, 90_000_000)] == [
        "",
        "0ms",
        "250ms",
        "1s",
        "1m",
        "1m 1s",
        "1h",
        "1d 1h",
    ]


def test_what_would_move_the_cursor_is_shown_as_such() -> None:
    assert printable("a\x1b[2Jb\nc") == "a�[2Jb\nc"
    assert instant(None) == ""


def test_every_command_has_a_help_text() -> None:
    for words in (
        ("tasks", "create"),
        ("tasks", "list"),
        ("tasks", "get"),
        ("tasks", "cancel"),
        ("tasks", "wait"),
        ("approvals", "list"),
        ("approvals", "show"),
        ("approvals", "approve"),
        ("approvals", "deny"),
        ("actions", "list"),
        ("actions", "unknown"),
        ("actions", "settle"),
        ("events",),
        ("top",),
        ("keys", "new"),
        ("keys", "show"),
    ):
        shown = run(*words, "--help")
        assert shown.exit_code == 0
        assert "Exit status" in shown.output
