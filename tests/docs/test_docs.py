"""What the documents say is so: examples give what is printed beside them, commands and links exist."""

import base64
import contextlib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from durable_service.cli import durable_service
from relay_service.cli import relay_service
from relay_service.client.daemon_cli import relay_daemon
from relay_service.client.site_cli import relay_site
from sealwork.relay.v1 import site_plane_pb2
from service_common.signing import Signer, sign_request, sign_session

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCUMENTS = [
    README,
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples" / "python").glob("**/README.md")),
]
PROGRAMS: dict[str, click.Command] = {
    "relay-service": relay_service,
    "relay-daemon": relay_daemon,
    "relay-site": relay_site,
    "durable-service": durable_service,
}
SIGNATURE = "1v8OEy3VkDDl2wzK2AGvrlSxuePEK2mlP3F7bTwVM_vM8vw0aTTOdv8k80wNHpK3pdViSTfj-Hq6FhIBnG4iBA"
SESSION_SIGNATURE = "k7qhk3A68IdecOSu_1697vVw570vHXeyx9hrhOuZKeiTYtvBGDG7oc6-cDv4p4dhg60A018hXr4wTYSejSdcCA"


def blocks(document: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)


def commands(document: Path) -> Iterator[list[str]]:
    """The command lines of a document's shell blocks, as words; continued lines are one."""
    for block in blocks(document, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                yield words


# -- signing ----------------------------------------------------------------------------


def test_the_signing_example_prints_the_signature_beside_it() -> None:
    [example] = [block for block in blocks(README, "python") if "sealwork/v1/request" in block]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, "README.md", "exec"), {})
    assert printed.getvalue() == f"{SIGNATURE}\n"
    text = README.read_text()
    assert f"| `sealwork-signature` | `{SIGNATURE}` |" in text
    assert "| `sealwork-nonce` | `AAECAwQFBgcICQoLDA0ODw` |" in text
    assert "`A6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg`" in text
    assert "`56d97619697a6893c49665e144e59408202488c64b77b25e5acfb530ea7cdc8d`" in text


def test_the_client_signs_as_the_example_does() -> None:
    body = site_plane_pb2.GetJobRequest(job_id="job-1").SerializeToString()
    assert body.hex() == "0a056a6f622d31"
    method = "/sealwork.relay.v1.SitePlaneService/GetJob"
    signature = sign_request(
        Signer(bytes(range(32))), method, "shop", 1700000000000, "AAECAwQFBgcICQoLDA0ODw", body
    )
    assert signature == SIGNATURE


def test_the_session_example_is_what_a_client_sends() -> None:
    text = (ROOT / "docs" / "protocol.md").read_text()
    hello = site_plane_pb2.SiteHello(site_id="shop", process_id="p-1", protocol_version=1)
    body = hello.SerializeToString()
    assert body.hex() == "0a0473686f701203702d312801"
    method = "/sealwork.relay.v1.SitePlaneService/Session"
    signature = sign_session(Signer(bytes(range(32))), method, "shop", bytes(range(16)), body)
    assert base64.urlsafe_b64encode(signature).rstrip(b"=").decode() == SESSION_SIGNATURE
    for value in (
        "`0a0473686f701203702d312801`",
        "`695905b9a730611fb6fd88c7e05b702ea0d804e06a9c4de13489fbc5c6230b10`",
        "`AAECAwQFBgcICQoLDA0ODw`",
        f"`{SESSION_SIGNATURE}`",
    ):
        assert value in text


def test_the_library_example_can_be_imported() -> None:
    [example] = [block for block in blocks(README, "python") if "relay_service.client" in block]
    names: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), names)
    assert callable(names["ask"])


# -- commands ---------------------------------------------------------------------------


def resolve(program: str, words: list[str]) -> tuple[click.Command, list[str], list[str]]:
    """The command that the words name, its path, and the words behind it."""
    command, path = PROGRAMS[program], list[str]()
    context = click.Context(command, info_name=program)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, f"{program} {' '.join([*path, words[0]])} does not exist"
        command, path, words = found, [*path, words[0]], words[1:]
    return command, path, words


def shown_commands() -> list[tuple[str, ...]]:
    """Every call of our programs in the documents; redirections and pipes are cut off."""
    found = []
    for document in DOCUMENTS:
        for words in commands(document):
            if words[0] in PROGRAMS:
                ends = [words.index(mark) for mark in (">", "|", "&") if mark in words]
                found.append(tuple(words[: min(ends, default=len(words))]))
    return sorted(set(found))


def test_the_documents_show_every_program() -> None:
    assert {command[0] for command in shown_commands()} == set(PROGRAMS)


@pytest.mark.parametrize("shown", shown_commands(), ids=" ".join)
def test_every_command_that_is_shown_exists_with_its_options(shown: tuple[str, ...]) -> None:
    command, path, rest = resolve(shown[0], list(shown[1:]))
    known = {
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    }
    own = rest[: rest.index("--")] if "--" in rest else rest
    unknown = [word for word in own if word.startswith("-") and word not in {*known, "--help"}]
    assert not unknown, f"{' '.join(shown)}: no such option"
    helped = CliRunner().invoke(PROGRAMS[shown[0]], [*path, "--help"])
    assert helped.exit_code == 0
    assert helped.output.startswith("Usage:")


def test_every_make_target_that_is_shown_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = {
        name
        for document in DOCUMENTS
        for name in re.findall(r"(?:^|`)make ([a-z]+(?:-[a-z]+)*)", document.read_text(), re.MULTILINE)
    }
    assert {"demo", "test", "setup", "serve-relay"} <= shown
    assert shown <= targets


def test_stubs_are_generated_as_the_readme_says(tmp_path: Path) -> None:
    [block] = [block for block in blocks(README, "sh") if "grpc_tools.protoc" in block]
    # The plugin of another language is not installed here; one that is takes its place.
    script = block.replace('"protoc-gen-go"', '"protoc-gen-mypy"')
    script = script.replace("-o sealwork.binpb", f"-o {tmp_path}/sealwork.binpb")
    script = script.replace("buf generate sealwork.binpb", f"cd {tmp_path} && buf generate sealwork.binpb")
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=ROOT,
        env={"PATH": path, "HOME": str(tmp_path), "BUF_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "gen" / "sealwork" / "relay" / "v1" / "site_plane_pb2.pyi").exists()


# -- links ------------------------------------------------------------------------------


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings."""
    prose = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(document: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", document.read_text())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_resolves(document: Path) -> None:
    for link in links(document):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), f"{link} leads nowhere"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading"


# -- numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("ENVELOPE_BYTES", 6_291_456, "6,291,456 bytes"),
        ("FRAME_BYTES", 65_536, "65,536 bytes"),
        ("INLINE_BODY_BYTES", 32_768, "32,768 bytes"),
        ("QUEUED_JOBS_PER_SITE", 100_000, "100,000"),
        ("RESULT_BYTES_PER_SITE", 1_073_741_824, "1 GiB"),
        ("RESULT_RETENTION_MS", 86_400_000, "24 hours"),
        ("LEASES_PER_DEVICE", 64, "64 a device"),
        ("LEASES_PER_CALL", 500, "500 a call or frame"),
        ("UNSEALED_GRANTS_PER_ROUTE", 2, "2 for each site and owner"),
        ("AWAITING_PAYLOAD_MS", 10_000, "10 s; after three lapses"),
        ("SEAL_ATTEMPTS_BEFORE_EVICTION", 3, "three lapses"),
        ("GRANT_ACKNOWLEDGEMENT_MS", 10_000, "10 s"),
        ("DEFAULT_LEASE_MS", 60_000, "60 s, renewed every 20 s"),
        ("MINIMUM_LEASE_MS", 1_000, "1 s to 10 min"),
        ("MAXIMUM_LEASE_MS", 600_000, "1 s to 10 min"),
        ("CLOCK_SKEW_MS", 120_000, "120 s either way"),
        ("IDENTIFIER_CHARACTERS", 128, "1 to 128 characters"),
    ],
)
def test_the_limits_of_the_readme_are_those_of_the_code(name: str, value: int, shown: str) -> None:
    from relay_service.core import limits

    assert getattr(limits, name) == value
    assert shown in README.read_text().split("## Limits")[1]


def test_the_readme_names_the_stores_that_there_are() -> None:
    from relay_service.store_forms import FORMS

    for form in FORMS:
        assert f"`{form}`" in README.read_text()
