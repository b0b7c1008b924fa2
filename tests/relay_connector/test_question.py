"""Questions as the arguments of actions."""

from typing import Any

import pytest

from relay_connector import QuestionError
from relay_connector.question import Question, artifact_name, job_id_of, question_of
from relay_service.client import ChatMessage, ChatPayload, GeneratePayload
from relay_service.client.payloads import Payload
from tests.relay_connector.played_parties import ARTIFACT, DEADLINE_MS, HELLO, JOB, Scene

ARGS = {
    "audience": "private",
    "deadline_at_ms": DEADLINE_MS,
    "kind": "llm.generate",
    "owner": "alice",
    "payload": {"prompt": "hello"},
}


def test_a_question_is_bound_to_the_site_and_to_all_that_matters() -> None:
    wanted = Scene().connector.ask("a-1", HELLO, owner="alice", deadline_at_ms=DEADLINE_MS)
    assert (wanted.action_id, wanted.destination, wanted.args) == ("a-1", "relay:shop", ARGS)


def test_the_ids_follow_from_the_key_alone() -> None:
    assert job_id_of(Scene().action) == JOB
    assert artifact_name(JOB) == ARTIFACT


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (GeneratePayload("hello", system="be brief"), "llm.generate"),
        (ChatPayload([ChatMessage("user", "hello")]), "llm.chat"),
        ("whatever you like", "letters.sort"),
    ],
)
def test_what_is_asked_comes_back(payload: Payload | str, kind: str) -> None:
    question = Question(payload, kind, "alice", "team", "letters", DEADLINE_MS)
    assert question_of(question.to_args()) == question


@pytest.mark.parametrize(
    "args",
    [
        None,
        [],
        {},
        {**ARGS, "payload": {"prompt": ""}},
        {**ARGS, "payload": {"prompt": "hello", "model": "large"}},
        {**ARGS, "payload": "hello"},
        {**ARGS, "audience": "everybody"},
        {**ARGS, "deadline_at_ms": "soon"},
        {**ARGS, "deadline_at_ms": True},
        {**ARGS, "owner": None},
        {**ARGS, "model": "large"},
        {name: value for name, value in ARGS.items() if name != "owner"},
        {name: value for name, value in ARGS.items() if name != "payload"},
    ],
)
def test_anything_else_is_no_question(args: Any) -> None:
    with pytest.raises(QuestionError):
        question_of(args)


def test_a_text_needs_a_kind() -> None:
    with pytest.raises(ValueError, match="needs a kind"):
        Scene().connector.ask("a-1", "sort this", owner="alice", deadline_at_ms=DEADLINE_MS)
