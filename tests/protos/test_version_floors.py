"""Generated code refuses to load on an older runtime than it was made for; pip must refuse it first."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "protos" / "gen" / "python" / "sealwork"

_GRPC_STAMP = re.compile(r"^GRPC_GENERATED_VERSION = '([^']+)'", re.MULTILINE)
_PROTOBUF_STAMP = re.compile(
    r"ValidateProtobufRuntimeVersion\(\s*[\w.]+,\s*(\d+),\s*(\d+),\s*(\d+),\s*'[^']*',", re.MULTILINE
)


def test_floor_of_grpcio_is_the_stamp_of_the_generated_services() -> None:
    stamps = {path.name: _stamp(_GRPC_STAMP, path) for path in GENERATED.rglob("*_pb2_grpc.py")}

    assert stamps, "no generated services were found"
    assert set(stamps.values()) == {_floor("grpcio")}


def test_floor_of_protobuf_is_the_stamp_of_the_generated_messages() -> None:
    stamps = {path.name: _stamp(_PROTOBUF_STAMP, path) for path in GENERATED.rglob("*_pb2.py")}

    assert stamps, "no generated messages were found"
    assert set(stamps.values()) == {_floor("protobuf")}


def test_protobuf_is_held_below_the_next_major_version() -> None:
    # A protobuf runtime loads code of its own major version and of the one before; the next may not.
    major = int(_floor("protobuf").partition(".")[0])

    assert _requirement("protobuf").endswith(f",<{major + 1}")


def _stamp(pattern: re.Pattern[str], path: Path) -> str:
    found = pattern.search(path.read_text(encoding="utf-8"))
    assert found, f"{path} carries no version stamp"
    return ".".join(found.groups())


def _floor(name: str) -> str:
    return _requirement(name).partition(">=")[2].partition(",")[0]


def _requirement(name: str) -> str:
    dependencies: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "dependencies"
    ]
    return next(text for text in dependencies if re.match(rf"{name}\b(?!-)", text))
