"""Writes docs/errors.md from the comments of the ErrorReason enums.

    python protos/error_reference.py           write docs/errors.md
    python protos/error_reference.py --check   compare with the committed file; 2 when stale

Each value's comment reads "Code: NOT_FOUND. What it means. Client: what the caller should do."; several codes
are joined by "or".
"""

import argparse
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import grpc
from google.protobuf import descriptor_pb2

import compiler

TARGET = compiler.PROTO_ROOT.parent / "docs" / "errors.md"
ENUM = "ErrorReason"
PREFIX = "ERROR_REASON_"
DOMAIN = "sealwork.dev"
STALE = 2

_COMMENT = re.compile(r"Code: (?P<codes>[A-Z_]+(?: or [A-Z_]+)*)\. (?P<meaning>.+?) Client: (?P<client>.+)")
_FIELD_NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")
_CODES = frozenset(code.name for code in grpc.StatusCode) - {"OK"}

_INTRODUCTION = """\
<!-- Written by protos/error_reference.py from the error_reason.proto files; do not edit. -->

# Error reasons

Every error status carries exactly one `google.rpc.ErrorInfo`. Its `reason` is one of the names below, without
the enum's prefix, and its `domain` names the service. A delay worth waiting comes as `google.rpc.RetryInfo`,
and faulty fields of a request as `google.rpc.BadRequest`. Errors inside a session carry the same
`google.rpc.Status` in a frame, and the session lives on.

Some proxies lose the trailers that hold these details. A bare `UNAVAILABLE`, `CANCELLED`, `INTERNAL` or
`UNKNOWN` without a reason means that the outcome of the call is not known: repeat it with the same ids.
"""


@dataclass(frozen=True)
class Reason:
    """One row of the reference.

    Attributes:
        name: the reason as sent on the wire.
        codes: the gRPC status codes that it comes with.
        meaning: what happened.
        client: what the caller should do.
    """

    name: str
    codes: tuple[str, ...]
    meaning: str
    client: str


def main() -> int:
    """Writes or checks the reference; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare with the committed file, write nothing")
    arguments = parser.parse_args()
    try:
        text = reference()
    except compiler.CompilerError as error:
        print(error, file=sys.stderr)
        return 1
    shown = TARGET.relative_to(compiler.PROTO_ROOT.parent)
    if arguments.check:
        if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
            print(f"{shown} is stale, run `make proto`", file=sys.stderr)
            return STALE
        print(f"{shown} is up to date")
        return 0
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(text, encoding="utf-8")
    print(f"wrote {shown}")
    return 0


def reference() -> str:
    """Returns the text of the reference for the protos as they are now.

    Raises:
        CompilerError: the sources do not compile, or a comment is not of the form given above.
    """
    with tempfile.TemporaryDirectory() as scratch:
        files = compiler.descriptor_set(Path(scratch)).file
    sections = [
        _section(file, index)
        for file in sorted(files, key=lambda file: file.name)
        if file.name.endswith("/v1/error_reason.proto")
        for index, enum in enumerate(file.enum_type)
        if enum.name == ENUM
    ]
    return "\n".join([_INTRODUCTION, *sections])


def _section(file: descriptor_pb2.FileDescriptorProto, enum_index: int) -> str:
    comments = {
        tuple(place.path): _one_line(place.leading_comments) for place in file.source_code_info.location
    }
    enum_path = (descriptor_pb2.FileDescriptorProto.ENUM_TYPE_FIELD_NUMBER, enum_index)
    value_field = descriptor_pb2.EnumDescriptorProto.VALUE_FIELD_NUMBER
    rows = [
        _row(_reason(value.name, comments.get((*enum_path, value_field, value_index), "")))
        for value_index, value in enumerate(file.enum_type[enum_index].value)
        if value.number != 0
    ]
    head = ["| Reason | Code | Meaning | What a client does |", "|---|---|---|---|"]
    area = file.package.split(".")[1]
    title = [f"## {area.capitalize()}", "", f"Package `{file.package}`, domain `{area}.{DOMAIN}`.", ""]
    return "\n".join([*title, *head, *rows, ""])


def _row(reason: Reason) -> str:
    codes = " or ".join(f"`{code}`" for code in reason.codes)
    return f"| `{reason.name}` | {codes} | {_cell(reason.meaning)} | {_cell(reason.client)} |"


def _reason(name: str, comment: str) -> Reason:
    match = _COMMENT.fullmatch(comment)
    if match is None:
        message = f'{name}: the comment must read "Code: CODE. Meaning. Client: action.", not {comment!r}'
        raise compiler.CompilerError(message)
    codes = tuple(match["codes"].split(" or "))
    if unknown := set(codes) - _CODES:
        message = f"{name}: no such gRPC status code: {', '.join(sorted(unknown))}"
        raise compiler.CompilerError(message)
    return Reason(name.removeprefix(PREFIX), codes, match["meaning"], match["client"])


def _one_line(comment: str) -> str:
    return " ".join(comment.split())


def _cell(text: str) -> str:
    capital = text[:1].upper() + text[1:]
    return _FIELD_NAME.sub(r"`\g<0>`", capital).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
