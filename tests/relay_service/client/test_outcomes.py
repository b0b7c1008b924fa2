"""Outcomes: their spelling, and that a site reads exactly what a device may say."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay_service.client.payloads import (
    CanceledOutcome,
    ErrorOutcome,
    OkOutcome,
    Outcome,
    PayloadError,
    RunMetadata,
    dump_outcome,
    parse_outcome,
)

GEMMA = RunMetadata("gemma3:12b", "http", 1234, "end", stop_reported=True)
V5_TEXT = (
    '{"outcome":{"outcome":"ok","text":"hi"},"ran":{"model":"gemma3:12b","backendClass":"http",'
    '"durationMs":1234,"stop":"end","stopReported":true}}'
)
BRIEF = RunMetadata("m", "process", 0)
SPELLED: list[tuple[Outcome, RunMetadata, str]] = [
    (OkOutcome("hi"), GEMMA, V5_TEXT),
    (
        OkOutcome("é🔒\u2028", "https://example.org/a?b=c"),
        RunMetadata("m", "process", 1, "unknown", stop_reported=False),
        (
            '{"outcome":{"outcome":"ok","text":"é🔒\u2028","artifactUrl":"https://example.org/a?b=c"},'
            '"ran":{"model":"m","backendClass":"process","durationMs":1,"stop":"unknown","stopReported":false}}'
        ),
    ),
    (
        OkOutcome(""),
        RunMetadata("m", "http", 1, "stop-sequence"),
        (
            '{"outcome":{"outcome":"ok","text":""},'
            '"ran":{"model":"m","backendClass":"http","durationMs":1,"stop":"stop-sequence"}}'
        ),
    ),
    (
        ErrorOutcome("timeout", "it took too long", retryable=True),
        BRIEF,
        (
            '{"outcome":{"outcome":"error","code":"timeout","message":"it took too long","retryable":true},'
            '"ran":{"model":"m","backendClass":"process","durationMs":0}}'
        ),
    ),
    (
        CanceledOutcome(),
        BRIEF,
        '{"outcome":{"outcome":"canceled"},"ran":{"model":"m","backendClass":"process","durationMs":0}}',
    ),
]


@pytest.mark.parametrize(("outcome", "ran", "text"), SPELLED)
def test_an_outcome_is_spelled_so_and_read_back(outcome: Outcome, ran: RunMetadata, text: str) -> None:
    assert dump_outcome(outcome, ran) == text
    read = parse_outcome(text)
    assert read.outcome == outcome
    assert read.ran == ran
    assert read == (outcome, ran)


@pytest.mark.parametrize(
    ("outcome", "disposition"),
    [
        (OkOutcome("x"), "ok"),
        (ErrorOutcome("c", "m", retryable=False), "error"),
        (CanceledOutcome(), "canceled"),
    ],
)
def test_an_outcome_knows_its_disposition(outcome: Outcome, disposition: str) -> None:
    assert outcome.disposition == disposition


RAN: dict[str, Any] = {"model": "m", "backendClass": "http", "durationMs": 5}
OK: dict[str, Any] = {"outcome": "ok", "text": "x"}
ERROR: dict[str, Any] = {"outcome": "error", "code": "c", "message": "m", "retryable": True}


@pytest.mark.parametrize(
    "outcome",
    [
        None,
        "ok",
        [],
        {},
        {"outcome": "done", "text": "x"},
        {"outcome": "cancelled"},
        {"outcome": "ok"},
        {"text": "x"},
        OK | {"text": None},
        OK | {"text": 5},
        OK | {"note": "x"},
        OK | {"artifactUrl": None},
        OK | {"artifactUrl": ""},
        OK | {"artifactUrl": "not a url"},
        OK | {"artifactUrl": "/relative"},
        OK | {"artifactUrl": "//host/path"},
        OK | {"artifactUrl": "http:"},
        OK | {"artifactUrl": "http://[half"},
        OK | {"artifactUrl": "https://example.org/\nx"},
        OK | {"retryable": True},
        ERROR | {"retryable": 1},
        ERROR | {"retryable": "true"},
        ERROR | {"code": ""},
        ERROR | {"message": ""},
        ERROR | {"code": None},
        ERROR | {"stack": "x"},
        {"outcome": "error", "code": "c", "message": "m"},
        {"outcome": "canceled", "text": "x"},
    ],
)
def test_an_outcome_of_another_form_is_refused(outcome: object) -> None:
    with pytest.raises(PayloadError):
        parse_outcome(json.dumps({"outcome": outcome, "ran": RAN}))


@pytest.mark.parametrize(
    "ran",
    [
        None,
        [],
        {},
        {"model": "m", "backendClass": "http"},
        RAN | {"model": ""},
        RAN | {"model": None},
        RAN | {"backendClass": "wasm"},
        RAN | {"backendClass": None},
        RAN | {"durationMs": -1},
        RAN | {"durationMs": 1.5},
        RAN | {"durationMs": True},
        RAN | {"durationMs": "5"},
        RAN | {"durationMs": 9_007_199_254_740_992},
        RAN | {"durationMs": 10**30},
        RAN | {"stop": "eos"},
        RAN | {"stop": None},
        RAN | {"stopReported": 1},
        RAN | {"stopReported": None},
        RAN | {"tokens": 5},
    ],
)
def test_run_metadata_of_another_form_is_refused(ran: object) -> None:
    with pytest.raises(PayloadError):
        parse_outcome(json.dumps({"outcome": OK, "ran": ran}))


@pytest.mark.parametrize(
    "value", [None, [], {}, {"outcome": OK}, {"ran": RAN}, {"outcome": OK, "ran": RAN, "x": 1}]
)
def test_a_result_of_another_form_is_refused(value: object) -> None:
    with pytest.raises(PayloadError):
        parse_outcome(json.dumps(value))


def test_a_device_says_why_its_text_ended_and_a_site_can_do_without() -> None:
    with pytest.raises(PayloadError, match="why its text ended"):
        dump_outcome(OkOutcome("x"), BRIEF)
    assert parse_outcome(json.dumps({"outcome": OK, "ran": RAN})).ran.stop is None


def test_an_error_does_not_quote_the_text() -> None:
    for text in (
        '{"outcome":{"outcome":"ok","text":"very private","x":1},"ran":{}}',
        '{"text":"very private"',
    ):
        with pytest.raises(PayloadError) as caught:
            parse_outcome(text)
        assert "private" not in str(caught.value)
        assert caught.value.__context__ is None


def test_the_text_form_of_an_outcome_does_not_show_its_text() -> None:
    assert "private" not in repr(OkOutcome("very private", "https://example.org/private"))


def test_a_lone_surrogate_cannot_be_spelled() -> None:
    with pytest.raises(PayloadError, match="surrogate"):
        dump_outcome(OkOutcome("\udc00"), GEMMA)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 9_007_199_254_740_991))
def test_every_ok_outcome_is_read_back(text: str, duration_ms: int) -> None:
    ran = RunMetadata("m", "http", duration_ms, "length")
    assert parse_outcome(dump_outcome(OkOutcome(text), ran)) == (OkOutcome(text), ran)
