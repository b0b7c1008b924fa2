"""protos/generate.py: what it writes, and how it tells that something committed is stale."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

Tool = Callable[..., subprocess.CompletedProcess[str]]


def _generated(sample: Path) -> set[str]:
    root = sample / "gen" / "python"
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_committed_code_is_what_the_pinned_generators_write() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "protos" / "generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "generated code is up to date\n", "")


def test_grpc_code_is_made_for_services_alone_and_the_namespace_has_no_init(sample: Path, tool: Tool) -> None:
    done = tool("generate.py")

    assert done.returncode == 0, done.stderr
    assert _generated(sample) == {
        "sealwork/py.typed",
        "sealwork/sample/v1/error_reason_pb2.py",
        "sealwork/sample/v1/error_reason_pb2.pyi",
        "sealwork/sample/v1/sample_service_pb2.py",
        "sealwork/sample/v1/sample_service_pb2.pyi",
        "sealwork/sample/v1/sample_service_pb2_grpc.py",
        "sealwork/sample/v1/sample_service_pb2_grpc.pyi",
    }


def test_a_changed_source_makes_its_generated_files_stale(sample: Path, tool: Tool) -> None:
    assert tool("generate.py").returncode == 0
    source = sample / "sealwork" / "sample" / "v1" / "sample_service.proto"
    source.write_text(source.read_text().replace("string job_id = 1", "string task_id = 1"))

    done = tool("generate.py", "--check")

    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "generated code is stale, run `make proto`:",
        "  sample/v1/sample_service_pb2.py: differs",
        "  sample/v1/sample_service_pb2.pyi: differs",
    ]


def test_a_removed_source_and_a_removed_output_are_both_named(sample: Path, tool: Tool) -> None:
    assert tool("generate.py").returncode == 0
    (sample / "sealwork" / "sample" / "v1" / "error_reason.proto").unlink()
    (sample / "gen" / "python" / "sealwork" / "py.typed").unlink()

    done = tool("generate.py", "--check")

    assert done.returncode == 2
    assert done.stderr.splitlines()[1:] == [
        "  py.typed: missing",
        "  sample/v1/error_reason_pb2.py: left over",
        "  sample/v1/error_reason_pb2.pyi: left over",
    ]


def test_another_generator_warns_when_writing_and_fails_the_check(sample: Path, tool: Tool) -> None:
    pins = sample.parent / "pyproject.toml"
    pins.write_text(pins.read_text().replace('"grpcio-tools==1.85.1"', '"grpcio-tools==1.0.0"'))

    written = tool("generate.py")
    checked = tool("generate.py", "--check")

    assert written.returncode == 0
    assert written.stderr.startswith("warning: grpcio-tools ")
    assert checked.returncode == 2
    assert "pinned to 1.0.0" in checked.stderr


def test_a_source_that_does_not_compile_leaves_the_old_code_in_place(sample: Path, tool: Tool) -> None:
    assert tool("generate.py").returncode == 0
    before = _generated(sample)
    (sample / "sealwork" / "sample" / "v1" / "broken.proto").write_text('syntax = "proto3";\nmessage {')

    done = tool("generate.py")

    assert done.returncode == 1
    assert "broken.proto:2" in done.stderr
    assert _generated(sample) == before
    assert [path.name for path in (sample / "gen" / "python").iterdir()] == ["sealwork"]


def test_buf_accepts_the_sample_and_reports_a_change_that_breaks_callers(sample: Path, tool: Tool) -> None:
    without_baseline = tool("generate.py", "--lint")
    assert without_baseline.returncode == 1
    assert "baseline.binpb is missing" in without_baseline.stderr

    assert tool("generate.py", "--baseline").returncode == 0
    clean = tool("generate.py", "--lint")
    assert (clean.returncode, clean.stdout) == (0, "buf lint and buf breaking: clean\n"), clean.stderr

    source = sample / "sealwork" / "sample" / "v1" / "sample_service.proto"
    source.write_text(source.read_text().replace("string job_id = 1", "string job_id = 2"))
    broken = tool("generate.py", "--lint")

    assert broken.returncode != 0
    assert 'Previously present field "1" with name "job_id" on message "LookRequest"' in broken.stdout


def test_buf_reports_a_message_without_a_comment(sample: Path, tool: Tool) -> None:
    assert tool("generate.py", "--baseline").returncode == 0
    source = sample / "sealwork" / "sample" / "v1" / "sample_service.proto"
    source.write_text(source.read_text().replace("// What was found.\n", ""))

    done = tool("generate.py", "--lint")

    assert done.returncode != 0
    assert 'Message "LookResponse" should have a non-empty comment' in done.stdout
