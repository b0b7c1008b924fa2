"""The one text form of a JSON value, and the digest of that text.

It is the form of RFC 8785 with these differences: members whose name is an array index come first, in
numeric order; an unpaired surrogate is escaped; three member names are refused.
"""

import hashlib
import json.encoder
import re
from collections.abc import Mapping
from typing import Final, NewType, TypeAlias

from durable_service.core.errors import DomainError, Reason, invalid
from durable_service.core.limits import MAXIMUM_SAFE_INTEGER

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
CanonicalJson = NewType("CanonicalJson", str)

# Names through which a JavaScript reader of the value could be made to change its own objects.
UNSAFE_NAMES: Final = frozenset({"__proto__", "constructor", "prototype"})

_ARRAY_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_LARGEST_ARRAY_INDEX: Final = 4_294_967_294
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_quoted = json.encoder.encode_basestring


def canonical_json(value: object) -> CanonicalJson:
    """The canonical text of a value made of None, bool, int, float, str, list, tuple and dict.

    Raises:
        DomainError: INVALID_JSON when it holds anything else, a number that is not finite, an unsafe
            member name, or nests without end.
    """
    pieces: list[str] = []
    try:
        _write(value, pieces)
    except RecursionError:
        raise DomainError(Reason.INVALID_JSON, "the value is nested too deeply") from None
    return CanonicalJson("".join(pieces))


def canonical_bytes(text: CanonicalJson) -> int:
    """The size of a canonical text in bytes: what every size limit counts."""
    return len(text) if text.isascii() else len(text.encode())


def digest_text(text: CanonicalJson) -> str:
    """`sha256:` and 64 lower-case hex digits over the UTF-8 of a canonical text."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def digest(value: object) -> str:
    return digest_text(canonical_json(value))


def canonical_object(members: Mapping[str, CanonicalJson]) -> CanonicalJson:
    """The canonical text of an object whose member values are canonical texts already."""
    parts = (f"{_text(name)}:{members[name]}" for name in _in_order(list(members)))
    return CanonicalJson("{" + ",".join(parts) + "}")


def canonical_number(number: float) -> str:
    """A finite double as ECMAScript prints it; an integer beyond double precision is rounded first.

    Raises:
        DomainError: INVALID_JSON when it is not finite, or larger than any double.
    """
    if isinstance(number, int):
        if abs(number) <= MAXIMUM_SAFE_INTEGER:
            return str(int(number))
        try:
            number = float(number)
        except OverflowError:
            raise DomainError(Reason.INVALID_JSON, "a number is not finite") from None
    if number - number != 0:
        raise DomainError(Reason.INVALID_JSON, "a number is not finite")
    if number == 0:
        return "0"
    sign = "-" if number < 0 else ""
    return sign + _decimal(*_shortest_digits(abs(number)))


def _shortest_digits(number: float) -> tuple[str, int]:
    """The digits of the shortest text that reads back equal, and where the point stands among them."""
    mantissa, _, exponent = repr(number).partition("e")
    whole, _, fraction = mantissa.partition(".")
    if fraction == "0":
        fraction = ""
    digits = (whole + fraction).lstrip("0")
    leading = len(whole + fraction) - len(digits)
    point = len(whole) - leading + int(exponent or "0")
    return digits.rstrip("0"), point


def _decimal(digits: str, point: int) -> str:
    count = len(digits)
    if count <= point <= 21:
        return digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    mantissa = digits if count == 1 else f"{digits[0]}.{digits[1:]}"
    return f"{mantissa}e{point - 1:+d}"


def _write(value: object, pieces: list[str]) -> None:
    if isinstance(value, str):
        pieces.append(_text(value))
    elif value is None:
        pieces.append("null")
    elif isinstance(value, bool):
        pieces.append("true" if value else "false")
    elif isinstance(value, int | float):
        pieces.append(canonical_number(value))
    elif isinstance(value, dict):
        _write_object(value, pieces)
    elif isinstance(value, list | tuple):
        _write_array(value, pieces)
    else:
        raise DomainError(Reason.INVALID_JSON, f"{type(value).__name__} is not a JSON value")


def _write_array(values: list[object] | tuple[object, ...], pieces: list[str]) -> None:
    separator = "["
    for value in values:
        pieces.append(separator)
        _write(value, pieces)
        separator = ","
    pieces.append("]" if values else "[]")


def _write_object(members: dict[object, object], pieces: list[str]) -> None:
    names = [name for name in members if isinstance(name, str)]
    if len(names) != len(members):
        raise DomainError(Reason.INVALID_JSON, "a member name is not a string")
    separator = "{"
    for name in _in_order(names):
        if name in UNSAFE_NAMES:
            raise invalid(Reason.INVALID_JSON, name, "this member name is not allowed")
        pieces.append(f"{separator}{_text(name)}:")
        _write(members[name], pieces)
        separator = ","
    pieces.append("}" if members else "{}")


def _in_order(names: list[str]) -> list[str]:
    # The common case, without a key for each name: among ASCII names code points are code units.
    if all(name.isascii() and not name[:1].isdigit() for name in names):
        return sorted(names)
    return sorted(names, key=_member_order)


def _member_order(name: str) -> tuple[int, bytes]:
    # Array indexes first: engines of the language that the digests come from enumerate them so.
    if _ARRAY_INDEX.fullmatch(name) and int(name) <= _LARGEST_ARRAY_INDEX:
        return int(name), b""
    # Code units, not code points: big-endian UTF-16 compares byte by byte as code units do.
    return _LARGEST_ARRAY_INDEX + 1, name.encode("utf-16-be", "surrogatepass")


def _text(text: str) -> str:
    quoted = _quoted(text)
    if quoted.isascii() or not _SURROGATE.search(quoted):
        return quoted
    return _SURROGATE.sub(lambda unit: f"\\u{ord(unit.group()):04x}", quoted)
