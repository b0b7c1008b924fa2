"""protos/error_reference.py: the table in docs/errors.md, and which comments it refuses."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

Tool = Callable[..., subprocess.CompletedProcess[str]]

SECTION = """\
## Sample

Package `sealwork.sample.v1`, domain `sample.sealwork.dev`.

| Reason | Code | Meaning | What a client does |
|---|---|---|---|
| `JOB_NOT_FOUND` | `NOT_FOUND` | No job has that id, or it is another site's. | Stop asking. |
| `SERVER_DRAINING` | `UNAVAILABLE` or `RESOURCE_EXHAUSTED` | The relay \\| ends. | Wait `retry_after_ms`. |
"""


def test_committed_reference_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "protos" / "error_reference.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "docs/errors.md is up to date\n", "")


def test_each_reason_is_a_row_with_code_meaning_and_client_action(sample: Path, tool: Tool) -> None:
    done = tool("error_reference.py")

    assert done.returncode == 0, done.stderr
    text = (sample.parent / "docs" / "errors.md").read_text()
    assert text.endswith(SECTION)
    assert "UNSPECIFIED" not in text


def test_a_changed_comment_makes_the_reference_stale(sample: Path, tool: Tool) -> None:
    assert tool("error_reference.py", "--check").returncode == 2
    assert tool("error_reference.py").returncode == 0
    assert tool("error_reference.py", "--check").returncode == 0
    source = sample / "sealwork" / "sample" / "v1" / "error_reason.proto"
    source.write_text(source.read_text().replace("Client: wait", "Client: always wait"))

    done = tool("error_reference.py", "--check")

    assert done.returncode == 2
    assert done.stderr == "docs/errors.md is stale, run `make proto`\n"


def test_a_reason_without_a_client_action_is_refused(sample: Path, tool: Tool) -> None:
    source = sample / "sealwork" / "sample" / "v1" / "error_reason.proto"
    source.write_text(source.read_text().replace(" Client: wait retry_after_ms.", ""))

    done = tool("error_reference.py")

    assert done.returncode == 1
    assert done.stderr.startswith("ERROR_REASON_SERVER_DRAINING: the comment must read")


def test_a_code_that_grpc_does_not_have_is_refused(sample: Path, tool: Tool) -> None:
    source = sample / "sealwork" / "sample" / "v1" / "error_reason.proto"
    source.write_text(source.read_text().replace("Code: NOT_FOUND.", "Code: MISSING."))

    done = tool("error_reference.py")

    assert done.returncode == 1
    assert done.stderr == "ERROR_REASON_JOB_NOT_FOUND: no such gRPC status code: MISSING\n"
