"""The strict reading of JSON that came from outside.

What two readers could understand differently is refused, with the place where it stands: a JSON Pointer.
What is accepted has one canonical form, and that form is accepted again.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from operator import lt
from typing import Final

from durable_service.core.canonical_json import (
    UNSAFE_NAMES,
    CanonicalJson,
    JsonValue,
    canonical_json,
)
from durable_service.core.errors import DomainError, Reason, invalid
from durable_service.core.limits import (
    JSON_BYTES,
    JSON_DEPTH,
    JSON_NODES,
    JSON_PATH_CHARACTERS,
    MAXIMUM_SAFE_INTEGER,
)

# From here on a number's canonical form has an exponent and cannot be taken for an exact integer.
_FIRST_EXPONENT_FORM: Final = 1e21
_LONGEST_SAFE_INTEGER: Final = len(f"-{MAXIMUM_SAFE_INTEGER}")

# Of objects that are canonical as they are: no escapes, no fractions, no exponents, nothing nested, and no
# name that could be an array index. A text holds no quotation mark, so only a name is followed by a colon.
_LONGEST_PLAIN: Final = 1_024
_NAME: Final = rb'"[A-Za-z_.-][A-Za-z0-9_.-]*"'
_VALUE: Final = rb'(?:"[ !#-\[\]-~]*"|0|-?[1-9][0-9]{0,14}|true|false|null)'
_PLAIN_OBJECT: Final = re.compile(rb"\{%b:%b(?:,%b:%b)*\}" % (_NAME, _VALUE, _NAME, _VALUE))
_PLAIN_NAME: Final = re.compile(rb'"([^"]+)":')
_UNSAFE: Final = frozenset(name.encode() for name in UNSAFE_NAMES)


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """What one value may cost: UTF-8 bytes, levels of nesting, values inside it including itself."""

    size_bytes: int = JSON_BYTES
    depth: int = JSON_DEPTH
    nodes: int = JSON_NODES


class _Members(list[tuple[str, object]]):
    """An object as it was written: in order and with its duplicates."""


@dataclass(frozen=True, slots=True)
class _BadNumber:
    description: str


def parse_json(data: bytes, field: str = "", limits: JsonLimits = JsonLimits()) -> JsonValue:
    """Reads one value.

    Args:
        field: what the value is called in refusals; the pointer is appended to it.

    Raises:
        DomainError: INVALID_JSON for bad syntax or UTF-8, a duplicate or unsafe member name, an unpaired
            surrogate, a number that is not finite, an integer beyond ±9007199254740991, or a
            value over a limit.
    """
    if len(data) > limits.size_bytes:
        raise invalid(Reason.INVALID_JSON, field, f"is larger than {limits.size_bytes} bytes")
    return _Reading(field, limits).checked(_parsed(data, field, limits.depth), ())


def parse_canonical(data: bytes, field: str = "", limits: JsonLimits = JsonLimits()) -> CanonicalJson:
    """The canonical text of what `parse_json` reads; raises the same."""
    if _is_plain(data, limits):
        return CanonicalJson(data.decode())
    return canonical_json(parse_json(data, field, limits))


def _is_plain(data: bytes, limits: JsonLimits) -> bool:
    """Whether this is a small object of simple members, within the limits and in its canonical form already.

    Nearly all data of journals is like this, and the way by `parse_json` takes ten times as long.
    """
    if len(data) > min(_LONGEST_PLAIN, limits.size_bytes) or not _PLAIN_OBJECT.fullmatch(data):
        return False
    names = _PLAIN_NAME.findall(data)
    # Strictly rising: in order, and none is there twice.
    in_order = all(map(lt, names, names[1:]))
    return in_order and _UNSAFE.isdisjoint(names) and len(names) < limits.nodes and limits.depth > 0


def _parsed(data: bytes, field: str, depth: int) -> object:
    try:
        return _DECODER.decode(data.decode())
    except UnicodeDecodeError as error:
        raise invalid(Reason.INVALID_JSON, field, f"is not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise invalid(Reason.INVALID_JSON, field, f"is not JSON at character {error.pos}") from None
    except RecursionError:
        raise invalid(Reason.INVALID_JSON, field, f"is nested deeper than {depth} levels") from None


def _integer(text: str) -> object:
    # The length first: reading a number of many digits takes quadratic time.
    if len(text) <= _LONGEST_SAFE_INTEGER and abs(number := int(text)) <= MAXIMUM_SAFE_INTEGER:
        return number
    return _BadNumber("an integer beyond ±9007199254740991 must be written as a string")


def _double(text: str) -> object:
    number = float(text)
    if number - number != 0:
        return _BadNumber("a number must be finite")
    if MAXIMUM_SAFE_INTEGER < abs(number) < _FIRST_EXPONENT_FORM:
        return _BadNumber("an integer beyond ±9007199254740991 must be written as a string")
    return number


def _constant(name: str) -> object:
    return _BadNumber(f"{name} is not a number of JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_Members, parse_int=_integer, parse_float=_double, parse_constant=_constant
)


class _Reading:
    """One walk over a parsed value that checks it and gives plain lists and dicts."""

    __slots__ = ("_field", "_limits", "_nodes")

    def __init__(self, field: str, limits: JsonLimits) -> None:
        self._field = field
        self._limits = limits
        self._nodes = 0

    def checked(self, value: object, path: tuple[str | int, ...]) -> JsonValue:
        self._nodes += 1
        if self._nodes > self._limits.nodes:
            raise invalid(Reason.INVALID_JSON, self._field, f"has more than {self._limits.nodes} values")
        if isinstance(value, str):
            return self._encodable(value, path)
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, _BadNumber):
            raise self._refused(path, value.description)
        return self._container(value, path)

    def _container(self, value: object, path: tuple[str | int, ...]) -> JsonValue:
        if len(path) >= self._limits.depth:
            raise self._refused(path, f"is nested deeper than {self._limits.depth} levels")
        if isinstance(value, _Members):
            return self._members(value, path)
        if isinstance(value, list):
            return [self.checked(item, (*path, place)) for place, item in enumerate(value)]
        raise self._refused(path, "is not a JSON value")

    def _members(self, members: _Members, path: tuple[str | int, ...]) -> JsonValue:
        plain: dict[str, JsonValue] = {}
        for name, value in members:
            inner = (*path, name)
            self._encodable(name, inner)
            if name in UNSAFE_NAMES:
                raise self._refused(inner, "this member name is not allowed")
            if name in plain:
                raise self._refused(inner, "this member is there twice")
            plain[name] = self.checked(value, inner)
        return plain

    def _encodable(self, text: str, path: tuple[str | int, ...]) -> str:
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise self._refused(path, "holds an unpaired surrogate") from None
        return text

    def _refused(self, path: tuple[str | int, ...], description: str) -> DomainError:
        return invalid(Reason.INVALID_JSON, self._field + pointer(path), description)


def pointer(path: tuple[str | int, ...]) -> str:
    """The JSON Pointer of a place, cut to a length that fits into a refusal."""
    escape: Callable[[str | int], str] = lambda step: str(step).replace("~", "~0").replace("/", "~1")  # noqa: E731
    text = "".join("/" + escape(step) for step in path)
    printable = text.encode("utf-8", "backslashreplace").decode()
    return (
        printable if len(printable) <= JSON_PATH_CHARACTERS else printable[: JSON_PATH_CHARACTERS - 1] + "…"
    )
