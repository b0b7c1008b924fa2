"""Answers as they are kept."""

import pytest

from relay_connector import Answer, NoAnswerError, WhyNone, artifact_id_of
from relay_service.client import CanceledOutcome, ErrorOutcome, OkOutcome
from tests.relay_connector.played_parties import result


def test_an_answer_is_kept_with_who_gave_it() -> None:
    answer = Answer.of(result(OkOutcome("grüße")))
    kept = (
        '{"content":"grüße","device_key_id":"BYOLLM-1","disposition":"ok","duration_ms":12,"model":"small",'
        '"retryable":false,"runner_id":"desk","runner_owner":"alice"}'
    )
    assert answer.to_bytes().decode() == kept
    assert Answer.from_bytes(kept.encode()) == answer
    assert answer.text == "grüße"


def test_an_error_is_an_end_with_a_reason() -> None:
    answer = Answer.of(result(ErrorOutcome("refused", "not here", retryable=False)))
    assert Answer.from_bytes(answer.to_bytes()) == answer
    with pytest.raises(NoAnswerError, match="the device could not answer: refused: not here"):
        _ = answer.text


def test_a_cancel_is_an_end() -> None:
    answer = Answer.of(result(CanceledOutcome()))
    assert answer.disposition == "canceled"
    with pytest.raises(NoAnswerError, match="stopped when it was withdrawn"):
        _ = answer.text


@pytest.mark.parametrize("why", list(WhyNone))
def test_why_there_is_none_is_told(why: WhyNone) -> None:
    answer = Answer.none(why)
    assert answer.to_bytes().decode() == f'{{"disposition":"none","retryable":true,"why":"{why.value}"}}'
    assert Answer.from_bytes(answer.to_bytes()) == answer
    with pytest.raises(NoAnswerError, match="the question has no answer"):
        _ = answer.text


@pytest.mark.parametrize("content", [b"", b"[]", b'"x"', b"\xff", b'{"disposition":"ok","other":1}', b"{}"])
def test_other_bytes_are_no_answer(content: bytes) -> None:
    with pytest.raises(ValueError, match="these bytes are no answer"):
        Answer.from_bytes(content)


def test_a_text_does_not_show() -> None:
    assert "secret" not in repr(Answer.of(result(OkOutcome("secret"))))


def test_a_reference_names_the_artifact() -> None:
    assert artifact_id_of("artifact:answer-1") == "answer-1"
    with pytest.raises(ValueError, match="none of a question"):
        artifact_id_of("mail:7")
