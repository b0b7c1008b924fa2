"""Runs the protocol buffer compiler over the sources in this folder.

Only the tools installed beside this interpreter are used: grpcio-tools brings protoc, mypy-protobuf the type
stubs, googleapis-common-protos the google/rpc sources that ours import.
"""

import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from google.protobuf import descriptor_pb2

PROTO_ROOT = Path(__file__).resolve().parent
NAMESPACE = "sealwork"
GENERATED_ROOT = PROTO_ROOT / "gen" / "python" / NAMESPACE
GENERATOR_PACKAGES = ("grpcio-tools", "mypy-protobuf")

_SERVICE = re.compile(r"^service\s+\w+", re.MULTILINE)


class CompilerError(Exception):
    """protoc refused the sources, or is not installed; the text is meant for a person."""


def sources() -> list[Path]:
    """Returns every .proto file of ours, relative to the import root, in a fixed order."""
    found = sorted(path.relative_to(PROTO_ROOT) for path in (PROTO_ROOT / NAMESPACE).rglob("*.proto"))
    if not found:
        message = f"no .proto files under {PROTO_ROOT / NAMESPACE}"
        raise CompilerError(message)
    return found


def service_sources() -> list[Path]:
    """Returns the sources that declare a service: only they get gRPC code, so no empty stubs are made."""
    return [path for path in sources() if _SERVICE.search((PROTO_ROOT / path).read_text(encoding="utf-8"))]


def google_root() -> Path:
    """Returns the folder that holds google/rpc/*.proto as installed."""
    spec = importlib.util.find_spec("google.rpc.status_pb2")
    if spec is None or spec.origin is None:
        message = "googleapis-common-protos is not installed: run `make setup`"
        raise CompilerError(message)
    return Path(spec.origin).parents[2]


def version_mismatches() -> list[str]:
    """Compares the installed generators with the versions pinned in pyproject.toml.

    Returns:
        One line for each generator that is missing or of another version; empty when all agree.
    """
    pins = _pinned_versions()
    return [
        f"{name} {installed or 'is not installed'}, pinned to {pins[name]}"
        for name in GENERATOR_PACKAGES
        if (installed := _installed_version(name)) != pins[name]
    ]


def generate_into(folder: Path) -> None:
    """Writes the Python code for all sources into a folder that is going to be the namespace package.

    Args:
        folder: an existing, empty folder named like the namespace.

    Raises:
        CompilerError: protoc refused a source.
    """
    out = folder.parent
    _protoc([f"--python_out={out}", f"--mypy_out=quiet:{out}"], sources())
    if services := service_sources():
        _protoc([f"--grpc_python_out={out}", f"--mypy_grpc_out=quiet:{out}"], services)
    # A type checker looks for the marker at the root of the namespace, and a namespace has no __init__.py.
    (folder / "py.typed").touch()


def descriptor_set(scratch: Path) -> descriptor_pb2.FileDescriptorSet:
    """Compiles all sources, and what they import, to descriptors that carry the comments.

    Args:
        scratch: a folder for the intermediate file.
    """
    file = scratch / "descriptors.binpb"
    _protoc(["--include_imports", "--include_source_info", f"--descriptor_set_out={file}"], sources())
    return descriptor_pb2.FileDescriptorSet.FromString(file.read_bytes())


def _protoc(options: Iterable[str], files: Iterable[Path]) -> None:
    scripts = Path(sys.executable).parent
    command = [
        sys.executable,
        *("-W", "ignore", "-m", "grpc_tools.protoc"),
        f"-I{PROTO_ROOT}",
        f"-I{google_root()}",
        f"--plugin=protoc-gen-mypy={scripts / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={scripts / 'protoc-gen-mypy_grpc'}",
        *options,
        *(path.as_posix() for path in files),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise CompilerError(done.stderr.strip() or f"protoc ended with status {done.returncode}")


def _pinned_versions() -> dict[str, str]:
    project = tomllib.loads((PROTO_ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = [requirement.partition("==") for requirement in project["optional-dependencies"]["dev"]]
    return {name: version for name, equals, version in pins if equals}


def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
