"""The canonical text of JSON values and the digest of it."""

import json
import math
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_service.core.canonical_json import (
    CanonicalJson,
    canonical_bytes,
    canonical_json,
    canonical_number,
    canonical_object,
    digest,
    digest_text,
)
from durable_service.core.errors import DomainError, Reason

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "canonical.json").read_bytes())["cases"]
_LITERAL_ESCAPES = {"lone-surrogate", "lone-low"}

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.integers(0, 2**33).map(str)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=5),
    max_leaves=20,
)


def shown(vector: dict[str, Any]) -> str:
    """The real text: a vector writes characters from U+007F up as escapes."""
    canonical = vector["canonical"]
    if vector["name"] in _LITERAL_ESCAPES:
        return str(canonical)
    raw = "".join(f"\\u{ord(c):04x}" if ord(c) >= 0x7F else c for c in canonical)
    # The escapes of control characters below U+0020, of quotes and backslashes belong to the text itself.
    pieces = []
    place = 0
    while place < len(raw):
        if raw[place] == "\\" and raw[place + 1] == "u" and int(raw[place + 2 : place + 6], 16) >= 0x7F:
            pieces.append(chr(int(raw[place + 2 : place + 6], 16)))
            place += 6
        elif raw[place] == "\\":
            pieces.append(raw[place : place + 2])
            place += 2
        else:
            pieces.append(raw[place])
            place += 1
    return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_vector(vector: dict[str, Any]) -> None:
    text = canonical_json(json.loads(vector["json"]))
    assert text == shown(vector)
    assert canonical_bytes(text) == vector["bytes"]
    assert digest_text(text) == vector["digest"]


def test_there_are_as_many_vectors_as_the_scheme_has() -> None:
    assert len(VECTORS) == 44


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.1, "0.1"),
        (-0.0, "0"),
        (123.456, "123.456"),
        (1e16, "10000000000000000"),
        (123456789012345680000.0, "123456789012345680000"),
        (999999999999999900000.0, "999999999999999900000"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (0.000001, "0.000001"),
        (0.00000123, "0.00000123"),
        (1.23e-7, "1.23e-7"),
        (-5e-324, "-5e-324"),
        (100.0, "100"),
        (9007199254740993, "9007199254740992"),
        (-9007199254740991, "-9007199254740991"),
        (10**25, "1e+25"),
    ],
)
def test_number(number: float, text: str) -> None:
    assert canonical_number(number) == text


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        10**400,
        [math.nan],
        {"a": math.inf},
        {1: 2},
        {"__proto__": 1},
        {"constructor": 1},
        {"a": [{"prototype": 1}]},
        b"bytes",
        {1, 2},
        object(),
        {"a": object()},
        1j,
    ],
    ids=repr,
)
def test_what_is_no_json(value: object) -> None:
    with pytest.raises(DomainError) as refusal:
        canonical_json(value)
    assert refusal.value.reason is Reason.INVALID_JSON


def test_a_cycle_is_refused() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(DomainError, match="nested too deeply"):
        canonical_json(cycle)


def test_a_tuple_is_an_array_and_an_inherited_name_is_a_name() -> None:
    assert canonical_json({"toString": (1, [2])}) == '{"toString":[1,[2]]}'


def test_an_object_of_texts_is_written_like_an_object_of_values() -> None:
    texts = {"b": CanonicalJson("[1]"), "10": CanonicalJson("null"), "9": CanonicalJson('{"a":1}')}
    assert canonical_object(texts) == '{"9":{"a":1},"10":null,"b":[1]}'


def test_a_digest_does_not_know_the_order_of_members() -> None:
    expected = "sha256:43258cff783fe7036d8a43033f830adfc60ec037382473548ac742b888292777"
    assert digest({"b": 2, "a": 1}) == digest({"a": 1, "b": 2}) == expected


@given(values)
def test_the_text_is_a_fixed_point(value: object) -> None:
    text = canonical_json(value)
    again = json.loads(text)
    assert canonical_json(again) == text


@given(values)
def test_the_text_says_what_the_value_is(value: object) -> None:
    # A large double may be written with digits that only a double rounds back.
    assert json.loads(canonical_json(value), parse_int=float) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_reads_back_to_the_same_bits(number: float) -> None:
    text = canonical_number(number)
    assert struct.pack(">d", float(text)) == struct.pack(">d", number + 0.0)
    digits = text.lstrip("-").partition("e")[0].replace(".", "").strip("0")
    shortest = repr(number).lstrip("-").partition("e")[0].replace(".", "").strip("0")
    assert digits == shortest


@given(st.dictionaries(names, st.none(), min_size=2))
def test_members_stand_in_order(members: dict[str, None]) -> None:
    order = list(json.loads(canonical_json(members)))
    indexes = [name for name in order if name.isascii() and name.isdigit() and str(int(name)) == name]
    indexes = [name for name in indexes if int(name) <= 4_294_967_294]
    others = [name for name in order if name not in indexes]
    assert order == indexes + others
    assert all(int(left) < int(right) for left, right in pairwise(indexes))
    units = [name.encode("utf-16-be") for name in others]
    assert units == sorted(units)
