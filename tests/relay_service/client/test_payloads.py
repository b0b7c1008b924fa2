"""Payloads of the two kinds: their spelling, their strictness and their limits."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay_service.client.payloads import (
    ChatMessage,
    ChatPayload,
    GeneratePayload,
    Payload,
    PayloadError,
    dump_payload,
    parse_payload,
    size_class,
    utf16_length,
)

HELLO = ChatMessage("user", "hello")
SPELLED: list[tuple[Payload, str]] = [
    (GeneratePayload("hello"), '{"prompt":"hello"}'),
    (GeneratePayload("hello", "be brief"), '{"prompt":"hello","system":"be brief"}'),
    (GeneratePayload("hello", ""), '{"prompt":"hello","system":""}'),
    (GeneratePayload('é🔒\u2028"\\\n\x01/'), '{"prompt":"é🔒\u2028\\"\\\\\\n\\u0001/"}'),
    (ChatPayload([HELLO]), '{"messages":[{"role":"user","content":"hello"}]}'),
    (
        ChatPayload([ChatMessage("system", "s"), HELLO, ChatMessage("assistant", "")], "be brief"),
        (
            '{"messages":[{"role":"system","content":"s"},{"role":"user","content":"hello"},'
            '{"role":"assistant","content":""}],"system":"be brief"}'
        ),
    ),
]


@pytest.mark.parametrize(("payload", "text"), SPELLED)
def test_a_payload_is_spelled_so_and_read_back(payload: Payload, text: str) -> None:
    assert dump_payload(payload) == text
    assert parse_payload(payload.kind, text) == payload


def test_the_order_and_the_blanks_of_what_is_read_do_not_matter() -> None:
    text = '{ "system": "s",\n "prompt": "\\u0070" }'
    assert parse_payload("llm.generate", text) == GeneratePayload("p", "s")


REFUSED_GENERATE: list[Any] = [
    {},
    {"prompt": ""},
    {"prompt": None},
    {"prompt": 5},
    {"prompt": ["x"]},
    {"prompt": "x", "system": None},
    {"prompt": "x", "system": 1},
    {"prompt": "x", "model": "m"},
    {"prompt": "x", "temperature": 0},
    {"system": "x"},
    {"messages": [{"role": "user", "content": "x"}]},
    [],
    "x",
    None,
]
REFUSED_CHAT: list[Any] = [
    {},
    {"messages": []},
    {"messages": None},
    {"messages": {}},
    {"messages": "x"},
    {"messages": ["x"]},
    {"messages": [{}]},
    {"messages": [{"role": "user"}]},
    {"messages": [{"content": "x"}]},
    {"messages": [{"role": "tool", "content": "x"}]},
    {"messages": [{"role": "User", "content": "x"}]},
    {"messages": [{"role": None, "content": "x"}]},
    {"messages": [{"role": "user", "content": None}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
    {"messages": [{"role": "user", "content": "x", "name": "n"}]},
    {"messages": [{"role": "user", "content": "x"}], "tools": []},
    {"messages": [{"role": "user", "content": "x"}], "system": None},
    {"prompt": "x"},
]


@pytest.mark.parametrize("value", REFUSED_GENERATE)
def test_a_generate_payload_of_another_form_is_refused(value: object) -> None:
    with pytest.raises(PayloadError):
        parse_payload("llm.generate", json.dumps(value))


@pytest.mark.parametrize("value", REFUSED_CHAT)
def test_a_chat_payload_of_another_form_is_refused(value: object) -> None:
    with pytest.raises(PayloadError):
        parse_payload("llm.chat", json.dumps(value))


@pytest.mark.parametrize(
    "text", ["", "{", "{'prompt':'x'}", '{"prompt":"\\ud800"}', '{"prompt":NaN}', "\ud800"]
)
@pytest.mark.parametrize("kind", ["llm.generate", "llm.chat"])
def test_what_is_no_json_is_refused(kind: str, text: str) -> None:
    with pytest.raises(PayloadError):
        parse_payload(kind, text)


@pytest.mark.parametrize("kind", ["", "llm.embed", "LLM.chat", "llm.generate "])
def test_an_unknown_kind_is_refused(kind: str) -> None:
    with pytest.raises(PayloadError, match="no such kind"):
        parse_payload(kind, '{"prompt":"hello"}')


def test_text_of_one_million_units_is_the_limit() -> None:
    full = "a" * 1_000_000
    assert GeneratePayload(full, full).text_length == 2_000_000
    for over in (full + "a", "🔒" * 500_000 + "a", "é" * 1_000_001):
        with pytest.raises(PayloadError, match="prompt"):
            GeneratePayload(over)
        with pytest.raises(PayloadError, match="system"):
            GeneratePayload("x", over)
        with pytest.raises(PayloadError, match="content"):
            ChatMessage("user", over)
        with pytest.raises(PayloadError, match="system"):
            ChatPayload([HELLO], over)
        with pytest.raises(PayloadError, match="prompt"):
            parse_payload("llm.generate", json.dumps({"prompt": over}))
    assert GeneratePayload("🔒" * 500_000).text_length == 1_000_000


def test_four_million_units_are_the_limit_of_all_text() -> None:
    full = ChatMessage("user", "a" * 1_000_000)
    assert ChatPayload([full] * 4).text_length == 4_000_000
    assert ChatPayload([full] * 3, "a" * 1_000_000).text_length == 4_000_000
    with pytest.raises(PayloadError, match="together"):
        ChatPayload([full] * 4, "a")
    with pytest.raises(PayloadError, match="together"):
        ChatPayload([*[full] * 4, ChatMessage("user", "a")])


def test_256_messages_are_the_limit() -> None:
    assert len(ChatPayload([HELLO] * 256).messages) == 256
    with pytest.raises(PayloadError, match="256"):
        ChatPayload([HELLO] * 257)
    with pytest.raises(PayloadError, match="256"):
        ChatPayload([])
    message = {"role": "user", "content": ""}
    assert (
        len(json.loads(dump_payload(parse_payload("llm.chat", json.dumps({"messages": [message] * 256})))))
        == 1
    )
    with pytest.raises(PayloadError, match="256"):
        parse_payload("llm.chat", json.dumps({"messages": [message] * 257}))


def test_a_lone_surrogate_cannot_be_spelled() -> None:
    with pytest.raises(PayloadError, match="surrogate"):
        dump_payload(GeneratePayload("a\ud800"))


def test_an_error_does_not_quote_the_text() -> None:
    with pytest.raises(PayloadError) as caught:
        parse_payload("llm.generate", '{"prompt":"very private","model":"m"}')
    assert "private" not in str(caught.value)
    with pytest.raises(PayloadError) as caught:
        parse_payload("llm.generate", '{"prompt":"very private"')
    assert "private" not in str(caught.value)
    assert caught.value.__context__ is None


def test_the_text_form_of_a_payload_does_not_show_its_text() -> None:
    payload = ChatPayload([ChatMessage("user", "very private")], "private too")
    assert "private" not in repr(payload)
    assert "private" not in repr(GeneratePayload("very private", "private too"))


def test_messages_cannot_be_changed_from_outside() -> None:
    messages = [HELLO]
    payload = ChatPayload(messages)
    messages.append(HELLO)
    assert payload.messages == (HELLO,)


@pytest.mark.parametrize(
    ("text", "length"), [("", 0), ("abc", 3), ("é", 1), ("日本", 2), ("🔒", 2), ("a🔒\ud800", 4)]
)
def test_length_in_utf_16_units(text: str, length: int) -> None:
    assert utf16_length(text) == length


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, "small"),
        (4_000, "small"),
        (4_001, "medium"),
        (64_000, "medium"),
        (64_001, "large"),
        (4_000_000, "large"),
    ],
)
def test_size_class(length: int, expected: str) -> None:
    assert size_class(length) == expected


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
SYSTEM = st.none() | TEXT
MESSAGES = st.lists(
    st.builds(ChatMessage, st.sampled_from(["system", "user", "assistant"]), TEXT), min_size=1, max_size=5
)


@settings(deadline=None)
@given(
    st.builds(GeneratePayload, TEXT.filter(bool), SYSTEM) | st.builds(ChatPayload, MESSAGES, SYSTEM),
)
def test_every_payload_is_read_back(payload: Payload) -> None:
    text = dump_payload(payload)
    assert parse_payload(payload.kind, text) == payload
    # Python's own encoder spells the same, so neither escapes what the other leaves.
    assert text == json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))
