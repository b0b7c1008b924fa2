"""Small objects that are canonical as they come are taken as they are; the strict reading says the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_service.core.canonical_json import canonical_json
from durable_service.core.canonical_json_reader import JsonLimits, parse_canonical, parse_json
from durable_service.core.errors import DomainError, Reason


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"step":1}', '{"step":1}'),
        (
            b'{"a":"x: \'y\' {}[],/","b":true,"c":null,"d":-17}',
            '{"a":"x: \'y\' {}[],/","b":true,"c":null,"d":-17}',
        ),
        (b'{"b":1,"a":2}', '{"a":2,"b":1}'),
        (b'{ "a": 1 }', '{"a":1}'),
        (b'{"a":-0}', '{"a":0}'),
        (b'{"a":1.0}', '{"a":1}'),
        (b'{"a":"\\u0041"}', '{"a":"A"}'),
        (b'{"a":1,"0":2}', '{"0":2,"a":1}'),
    ],
)
def test_canonical_text(data: bytes, text: str) -> None:
    assert parse_canonical(data) == text


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":1}',
        b'{"__proto__":1}',
        b'{"a":1,"constructor":2}',
        b'{"a":9007199254740992}',
        b'{"a":01}',
        b'{"a":1}\n{"b":1}',
        b'{"a":1,}',
    ],
)
def test_refused(data: bytes) -> None:
    with pytest.raises(DomainError) as caught:
        parse_canonical(data)
    assert caught.value.reason is Reason.INVALID_JSON


@pytest.mark.parametrize(
    "limits",
    [JsonLimits(size_bytes=12), JsonLimits(depth=0), JsonLimits(nodes=2)],
    ids=["bytes", "depth", "nodes"],
)
def test_over_a_limit(limits: JsonLimits) -> None:
    with pytest.raises(DomainError):
        parse_canonical(b'{"a":1,"b":2}', limits=limits)


def test_at_the_limits() -> None:
    limits = JsonLimits(size_bytes=13, depth=1, nodes=3)
    assert parse_canonical(b'{"a":1,"b":2}', limits=limits) == '{"a":1,"b":2}'


# Texts that are nearly plain: made of what plain objects are made of, and of what spoils them.
_PIECES = st.sampled_from(
    [
        "{",
        "}",
        '"a"',
        '"b"',
        '"b":',
        ":",
        ",",
        "0",
        "-",
        "1",
        "12",
        '""',
        '"',
        "\\",
        "true",
        "null",
        " ",
        "[",
        "]",
    ]
)


@given(st.lists(_PIECES, max_size=12).map("".join))
def test_the_same_as_the_strict_reading(text: str) -> None:
    data = text.encode()
    try:
        strict = canonical_json(parse_json(data))
    except DomainError:
        with pytest.raises(DomainError):
            parse_canonical(data)
    else:
        assert parse_canonical(data) == strict


@given(
    st.dictionaries(
        st.text("abz_.-09", min_size=1, max_size=3),
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=6),
        max_size=6,
    )
)
def test_canonical_texts_are_read_back(value: dict[str, object]) -> None:
    try:
        text = canonical_json(value)
        parse_json(text.encode())
    except (DomainError, UnicodeEncodeError):
        return
    assert parse_canonical(text.encode()) == text
