"""The compiled sources with their comments, in the form in which tests ask about them."""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from google.protobuf import descriptor_pb2
from google.rpc import status_pb2

PROTOS = Path(__file__).resolve().parents[2] / "protos"

_SERVICE = descriptor_pb2.FileDescriptorProto.SERVICE_FIELD_NUMBER
_ENUM = descriptor_pb2.FileDescriptorProto.ENUM_TYPE_FIELD_NUMBER
_METHOD = descriptor_pb2.ServiceDescriptorProto.METHOD_FIELD_NUMBER
_VALUE = descriptor_pb2.EnumDescriptorProto.VALUE_FIELD_NUMBER
_NAME_OF_REASON = re.compile(r"\b(?:[A-Z]+(?:_[A-Z]+)+|REPLAYED|INTERNAL|CONTENTION|INVARIANT)\b")

Field = descriptor_pb2.FieldDescriptorProto


@dataclass(frozen=True)
class Method:
    """One RPC, its comment as one line, and that of its service."""

    package: str
    service: str
    name: str
    request: str
    response: str
    streams: bool
    comment: str
    service_comment: str

    @property
    def path(self) -> str:
        return f"{self.package}.{self.service}/{self.name}"

    @property
    def errors(self) -> frozenset[str]:
        """Every reason that the comment of the method names as its errors."""
        return reasons_named(self.comment.partition("Errors:")[2])


@dataclass(frozen=True)
class Protocol:
    """All packages: methods in order, message types by full name, comments of reasons by package."""

    methods: tuple[Method, ...]
    messages: dict[str, descriptor_pb2.DescriptorProto]
    reasons: dict[str, dict[str, str]]

    def of(self, package: str) -> list[Method]:
        return [method for method in self.methods if method.package == package]

    def code(self, package: str, reason: str) -> str:
        """The gRPC code that a reason comes with."""
        return self.reasons[package][reason].removeprefix("Code: ").partition(".")[0]

    def fields(self, message: str) -> dict[str, Field]:
        return {field.name: field for field in self.messages[message].field}

    def reachable(self, message: str) -> Iterator[tuple[str, Field]]:
        """Every field of a message of ours and of those inside it, with the type that holds it."""
        seen: set[str] = set()
        pending = [message]
        while pending:
            name = pending.pop()
            if name in seen or name not in self.messages:
                continue
            seen.add(name)
            for field in self.messages[name].field:
                yield name, field
                pending.append(field.type_name)


def reasons_named(text: str) -> frozenset[str]:
    return frozenset(_NAME_OF_REASON.findall(text))


def compiled(target: Path) -> Protocol:
    """Compiles all sources of ours.

    Args:
        target: the file for the intermediate result.
    """
    google = Path(status_pb2.__file__).parents[2]
    sources = sorted(path.relative_to(PROTOS).as_posix() for path in (PROTOS / "sealwork").rglob("*.proto"))
    subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-m", "grpc_tools.protoc", "--include_source_info"),
            *(f"-I{PROTOS}", f"-I{google}", f"--descriptor_set_out={target}", *sources),
        ],
        check=True,
        timeout=90,
    )
    files = descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes()).file
    return Protocol(
        methods=tuple(method for file in files for method in _methods(file)),
        messages={
            f".{file.package}.{message.name}": message for file in files for message in file.message_type
        },
        reasons={
            file.package: _reasons(file) for file in files if file.name.endswith("/v1/error_reason.proto")
        },
    )


def _methods(file: descriptor_pb2.FileDescriptorProto) -> Iterator[Method]:
    comments = _comments(file)
    for index, service in enumerate(file.service):
        for method_index, method in enumerate(service.method):
            yield Method(
                package=file.package,
                service=service.name,
                name=method.name,
                request=method.input_type,
                response=method.output_type,
                streams=method.client_streaming or method.server_streaming,
                comment=comments.get((_SERVICE, index, _METHOD, method_index), ""),
                service_comment=comments.get((_SERVICE, index), ""),
            )


def _reasons(file: descriptor_pb2.FileDescriptorProto) -> dict[str, str]:
    comments = _comments(file)
    [(index, enum)] = [pair for pair in enumerate(file.enum_type) if pair[1].name == "ErrorReason"]
    return {
        value.name.removeprefix("ERROR_REASON_"): comments.get((_ENUM, index, _VALUE, value_index), "")
        for value_index, value in enumerate(enum.value)
        if value.number
    }


def _comments(file: descriptor_pb2.FileDescriptorProto) -> dict[Sequence[int], str]:
    return {
        tuple(place.path): " ".join(place.leading_comments.split())
        for place in file.source_code_info.location
    }
