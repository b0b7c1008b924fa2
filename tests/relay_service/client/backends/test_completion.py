import json

import pytest

from relay_service.client.backends.base import BackendFailure
from relay_service.client.backends.completion import Completion, CompletionStream, read_document
from tests.relay_service.client.backends.model_stub import DONE, event

ANSWER = event("Ünï") + event("çode ") + event("🦭") + event(finish="stop") + DONE


def read_all(stream: CompletionStream, data: bytes) -> Completion:
    stream.feed(data)
    return stream.finish()


def feed_for_ever(stream: CompletionStream, data: bytes) -> None:
    for _ in range(1000):
        stream.feed(data)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_chunks_may_end_anywhere_even_inside_a_character(size: int) -> None:
    raw = ANSWER.replace(rb"\ud83e\uddad", "🦭".encode())
    stream = CompletionStream(100)
    for start in range(0, len(raw), size):
        stream.feed(raw[start : start + size])

    completion = stream.finish()
    assert (completion.text, completion.stop) == ("Ünïçode 🦭", "end")


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_comments_other_fields_and_both_line_ends(end: bytes) -> None:
    lines = [
        b": keep-alive",
        b"",
        b"event: message",
        b'data: {"choices": [{"delta": {"content": "A"},',
        b'data:  "finish_reason": null}]}',
        b"",
        b'data:{"choices": [{"delta": {}, "finish_reason": "length"}]}',
        b"",
        b'data: {"choices": [], "usage": {"total_tokens": 3}}',
        b"",
        b"data: [DONE]",
        b"",
        b"",
    ]
    stream = CompletionStream(100)
    stream.feed(end.join(lines))

    assert stream.ended
    completion = stream.finish()
    assert (completion.text, completion.stop) == ("A", "length")


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("stop", "end"), ("eos", "end"), ("length", "length"), ("content_filter", "unknown"), ("", "unknown")],
)
def test_stop_reasons(reason: str, stop: str) -> None:
    stream = CompletionStream(100)
    stream.feed(event("A", finish=reason))
    assert stream.finish().stop == stop


def test_the_end_mark_alone_leaves_the_reason_unknown() -> None:
    stream = CompletionStream(100)
    stream.feed(event("A") + DONE)
    assert stream.finish().stop == "unknown"


def test_nothing_after_the_end_mark_counts() -> None:
    stream = CompletionStream(100)
    stream.feed(event("A") + DONE + event("B"))
    assert stream.finish().text == "A"


def test_the_last_event_needs_no_empty_line() -> None:
    stream = CompletionStream(100)
    stream.feed(event("A", finish="stop").rstrip(b"\n"))
    assert stream.finish().text == "A"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        event("A"),
        b"data: {not json}\n\n",
        b"data: []\n\n",
        b"data: " + b"[" * 100_000 + b"\n\n",
        b'data: {"error": {"message": "out of memory at /srv"}}\n\n',
    ],
)
def test_what_is_no_completion(data: bytes) -> None:
    stream = CompletionStream(1_000_000)
    with pytest.raises(BackendFailure) as caught:
        read_all(stream, data)
    assert caught.value.code == "service_unavailable"


def test_a_line_without_end_is_cut_off() -> None:
    stream = CompletionStream(10)
    with pytest.raises(BackendFailure) as caught:
        feed_for_ever(stream, b"data: " + b"x" * 1000)
    assert caught.value.code == "output-too-large"


def test_an_event_of_endless_lines_is_cut_off() -> None:
    stream = CompletionStream(10)
    with pytest.raises(BackendFailure) as caught:
        feed_for_ever(stream, b"data: " + b"x" * 1000 + b"\n")
    assert caught.value.code == "output-too-large"


def test_the_longest_spelling_of_an_answer_within_its_limit_is_read() -> None:
    stream = CompletionStream(20_000)
    spelled = b"\\u0041" * 20_000
    stream.feed(
        b'data: {"choices": [{"delta": {"content": "' + spelled + b'"}, "finish_reason": "stop"}]}\n\n'
    )
    assert stream.finish().text == "A" * 20_000


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    stream = CompletionStream(100)
    stream.feed(event("A\ud83dB", finish="stop"))
    assert stream.finish().text == "A?B"


def test_content_that_is_not_text_is_no_content() -> None:
    stream = CompletionStream(100)
    stream.feed(b'data: {"choices": [{"delta": {"content": [1, 2]}}]}\n\n')
    stream.feed(b'data: {"choices": [{"delta": null, "finish_reason": "stop"}]}\n\n')
    assert stream.finish().text == ""


def test_a_whole_document() -> None:
    body = json.dumps({"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]}).encode()
    assert read_document(body, 4).text == "Yes."
    with pytest.raises(BackendFailure) as caught:
        read_document(body, 3)
    assert caught.value.code == "output-too-large"


@pytest.mark.parametrize("body", [b"", b"{}", b'{"choices": []}', b'{"choices": [{"delta": {}}]}'])
def test_a_whole_document_that_is_no_completion(body: bytes) -> None:
    with pytest.raises(BackendFailure) as caught:
        read_document(body, 100)
    assert caught.value.code == "service_unavailable"
