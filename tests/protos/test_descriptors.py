"""The committed modules describe the sources, whichever protoc looks at them.

Unlike the byte comparison this holds with any version of the compiler.
"""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from google.rpc import status_pb2

PROTOS = Path(__file__).resolve().parents[2] / "protos"
GENERATED = PROTOS / "gen" / "python"
SOURCES = sorted(path.relative_to(PROTOS).as_posix() for path in (PROTOS / "sealwork").rglob("*.proto"))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, descriptor_pb2.FileDescriptorProto]:
    target = tmp_path_factory.mktemp("descriptors") / "all.binpb"
    google = Path(status_pb2.__file__).parents[2]
    subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-m", "grpc_tools.protoc"),
            *(f"-I{PROTOS}", f"-I{google}", f"--descriptor_set_out={target}", *SOURCES),
        ],
        check=True,
        timeout=90,
    )
    files = descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes()).file
    return {file.name: _without_json_names(file) for file in files}


@pytest.mark.parametrize("source", SOURCES)
def test_module_describes_its_source(
    source: str, compiled: dict[str, descriptor_pb2.FileDescriptorProto]
) -> None:
    module = importlib.import_module(source.removesuffix(".proto").replace("/", ".") + "_pb2")
    committed = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(committed)

    assert _without_json_names(committed) == compiled[source]


def test_there_is_one_module_a_source() -> None:
    modules = {path.relative_to(GENERATED).as_posix() for path in GENERATED.rglob("*_pb2.py")}

    assert modules == {source.removesuffix(".proto") + "_pb2.py" for source in SOURCES}


def test_every_source_names_its_go_and_java_packages(
    compiled: dict[str, descriptor_pb2.FileDescriptorProto],
) -> None:
    nameless = [
        file.name for file in compiled.values() if not (file.options.go_package and file.options.java_package)
    ]

    assert nameless == []


def _without_json_names(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """Clears the one thing that compilers and runtimes fill in or leave out at will."""
    pending = list(file.message_type)
    while pending:
        message = pending.pop()
        pending.extend(message.nested_type)
        for field in (*message.field, *message.extension):
            field.ClearField("json_name")
    for extension in file.extension:
        extension.ClearField("json_name")
    return file
