"""The strict reading of JSON from outside."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_service.core.canonical_json_reader import JsonLimits, parse_canonical, parse_json
from durable_service.core.errors import DomainError, Reason

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "canonical.json").read_bytes()
)["cases"]
# These are vectors of the canonical form alone: two readers may understand the source text differently.
REFUSED_VECTORS = {"e20", "unsafe-rounds", "big-int", "lone-surrogate", "lone-low", "dup-keys"}


def refusal(data: bytes, limits: JsonLimits = JsonLimits()) -> tuple[str, str]:  # noqa: B008
    with pytest.raises(DomainError) as caught:
        parse_json(data, "input", limits)
    assert caught.value.reason is Reason.INVALID_JSON
    (violation,) = caught.value.violations
    return violation.subject, violation.description


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_vector(vector: dict[str, Any]) -> None:
    source = vector["json"].encode()
    if vector["name"] in REFUSED_VECTORS:
        refusal(source)
    else:
        assert len(parse_canonical(source).encode()) == vector["bytes"]


@pytest.mark.parametrize(
    ("data", "subject", "description"),
    [
        (b'{"a":1,"a":2}', "input/a", "this member is there twice"),
        (b'{"a":[0,{"b":1,"b":1}]}', "input/a/1/b", "this member is there twice"),
        (b'{"\\u0061":1,"a":2}', "input/a", "this member is there twice"),
        (b'{"x/y":{"m~n":{"__proto__":1}}}', "input/x~1y/m~0n/__proto__", "this member name is not allowed"),
        (b'[{"constructor":1}]', "input/0/constructor", "this member name is not allowed"),
        (b'{"a":[{"prototype":1}]}', "input/a/0/prototype", "this member name is not allowed"),
        (b'["\\ud800"]', "input/0", "holds an unpaired surrogate"),
        (b'["\\udc00\\ud800"]', "input/0", "holds an unpaired surrogate"),
        (b'{"\\ud800":1}', "input/\\ud800", "holds an unpaired surrogate"),
        (b'{"a":NaN}', "input/a", "NaN is not a number of JSON"),
        (b"[-Infinity]", "input/0", "-Infinity is not a number of JSON"),
        (b"[1,1e999]", "input/1", "a number must be finite"),
        (b"9007199254740992", "input", "an integer beyond ±9007199254740991 must be written as a string"),
        (
            b"[-9007199254740992]",
            "input/0",
            "an integer beyond ±9007199254740991 must be written as a string",
        ),
        (b"1e20", "input", "an integer beyond ±9007199254740991 must be written as a string"),
        (b"9007199254740993.0", "input", "an integer beyond ±9007199254740991 must be written as a string"),
        (b"1" * 10_000, "input", "an integer beyond ±9007199254740991 must be written as a string"),
        (b'"\xff"', "input", "is not UTF-8 at byte 1"),
        (b'"\xed\xa0\x80"', "input", "is not UTF-8 at byte 1"),
        (b'{"a":}', "input", "is not JSON at character 5"),
        (b"", "input", "is not JSON at character 0"),
        (b"[1,]", "input", "is not JSON at character 3"),
        (b"{'a':1}", "input", "is not JSON at character 1"),
        (b"01", "input", "is not JSON at character 1"),
        (b"1 2", "input", "is not JSON at character 2"),
        (b'"\n"', "input", "is not JSON at character 1"),
        (b'\xef\xbb\xbf{"a":1}', "input", "is not JSON at character 0"),
        (b'"\\x41"', "input", "is not JSON at character 1"),
    ],
)
def test_refusal_names_the_place(data: bytes, subject: str, description: str) -> None:
    assert refusal(data) == (subject, description)


@pytest.mark.parametrize(
    ("data", "canonical"),
    [
        (b'"\\ud83d\\ude00"', '"\U0001f600"'),
        (b"9007199254740991", "9007199254740991"),
        (b"-9007199254740991", "-9007199254740991"),
        (b"1e21", "1e+21"),
        (b"1.7976931348623157e308", "1.7976931348623157e+308"),
        (b"-0", "0"),
        (b"-0.0", "0"),
        (b"1.0", "1"),
        (b' \t\r\n{ "b" : 1 , "a" : [ ] }', '{"a":[],"b":1}'),
        (b'{"toString":1}', '{"toString":1}'),
        (b'{"":""}', '{"":""}'),
    ],
)
def test_canonical(data: bytes, canonical: str) -> None:
    assert parse_canonical(data) == canonical


def test_depth() -> None:
    assert parse_json(b"[" * 64 + b"]" * 64) is not None
    assert refusal(b"[" * 65 + b"]" * 65) == ("input" + "/0" * 64, "is nested deeper than 64 levels")
    assert refusal(b'{"a":' * 3 + b"1" + b"}" * 3, JsonLimits(depth=2)) == (
        "input/a/a",
        "is nested deeper than 2 levels",
    )


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_depth_that_no_stack_holds(opening: bytes) -> None:
    assert refusal(opening * 150_000)[1] in {
        "is nested deeper than 64 levels",
        "is not JSON at character 150000",
    }


def test_nodes() -> None:
    assert parse_json(b"[" + b",".join([b"0"] * 9_999) + b"]")
    assert refusal(b"[" + b",".join([b"0"] * 10_000) + b"]") == ("input", "has more than 10000 values")


def test_size() -> None:
    limits = JsonLimits(size_bytes=5)
    assert parse_json(b'"abc"', "input", limits) == "abc"
    assert refusal(b'"abcd"', limits) == ("input", "is larger than 5 bytes")


def test_a_long_path_is_cut() -> None:
    subject, _ = refusal(b'{"' + b"k" * 1_000 + b'":NaN}')
    assert subject == "input/" + "k" * 254 + "…"


def accepted(data: bytes) -> str | None:
    """The canonical text, None for a value that is refused."""
    with suppress(DomainError):
        return parse_canonical(data)
    return None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=15,
)


@given(json_values)
def test_what_is_written_is_read(value: object) -> None:
    assert parse_json(json.dumps(value).encode()) == value


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    text = accepted(data)
    assert text is None or accepted(text.encode()) == text


@given(st.floats())
def test_any_accepted_number_stays_accepted(number: float) -> None:
    text = accepted(json.dumps(number).encode())
    assert text is None or accepted(text.encode()) == text
