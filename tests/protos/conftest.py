"""A small proto tree of its own, with the real tools beside it."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.protos.described_protocol import Protocol, compiled

ROOT = Path(__file__).resolve().parents[2]

SERVICE = """\
// What the tests send through the tools.
syntax = "proto3";

package sealwork.sample.v1;

import "google/rpc/status.proto";

option go_package = "example.com/sealwork/sample/v1;samplev1";
option java_package = "dev.sealwork.sample.v1";

// A service, so that gRPC code is made for this file.
service SampleService {
  // Looks something up.
  rpc Look(LookRequest) returns (LookResponse);
}

// What to look up.
message LookRequest {
  // Its name.
  string job_id = 1;
}

// What was found.
message LookResponse {
  // How it went.
  google.rpc.Status status = 1;
}
"""

REASONS = """\
// Reasons of the sample.
syntax = "proto3";

package sealwork.sample.v1;

option go_package = "example.com/sealwork/sample/v1;samplev1";
option java_package = "dev.sealwork.sample.v1";

// The reasons.
enum ErrorReason {
  // Never sent.
  ERROR_REASON_UNSPECIFIED = 0;
  // Code: NOT_FOUND. No job has that id,
  // or it is another site's. Client: stop asking.
  ERROR_REASON_JOB_NOT_FOUND = 1;
  // Code: UNAVAILABLE or RESOURCE_EXHAUSTED. The relay | ends. Client: wait retry_after_ms.
  ERROR_REASON_SERVER_DRAINING = 2;
}
"""

Tool = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def protocol(tmp_path_factory: pytest.TempPathFactory) -> Protocol:
    """All packages of ours as they are in the sources, compiled once."""
    return compiled(tmp_path_factory.mktemp("protocol") / "all.binpb")


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A checkout with the tools, the pins and two sample protos; returns the folder of the protos."""
    protos = tmp_path / "protos"
    protos.mkdir()
    shutil.copyfile(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    for tool in (*(ROOT / "protos").glob("*.py"), ROOT / "protos" / "buf.yaml"):
        shutil.copyfile(tool, protos / tool.name)
    package = protos / "sealwork" / "sample" / "v1"
    package.mkdir(parents=True)
    (package / "sample_service.proto").write_text(SERVICE, encoding="utf-8")
    (package / "error_reason.proto").write_text(REASONS, encoding="utf-8")
    return protos


@pytest.fixture
def tool(sample: Path) -> Tool:
    """Runs one of the sample checkout's tools and returns how it ended."""

    def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(sample / script), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )

    return run
