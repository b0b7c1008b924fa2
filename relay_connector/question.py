"""What is asked, as the arguments of an action, and the names that follow from the action's key."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from durable_service.client.actions import Action
from relay_service.client.payloads import ChatPayload, GeneratePayload, Payload, dump_payload, parse_payload
from relay_service.client.plaintext_fields import PayloadError

AudienceName: TypeAlias = Literal["private", "team"]

_KINDS: Final = frozenset({GeneratePayload.kind, ChatPayload.kind})
_REQUIRED: Final = {"audience": str, "deadline_at_ms": int, "kind": str, "owner": str}
_OPTIONAL: Final = {"purpose": str}
# Both names of one action say what they are the names of, and neither can be taken for the other.
_JOB: Final = "sealwork/relay-connector/v1/job"
_ANSWER: Final = "answer-"


class QuestionError(ValueError):
    """The arguments of an action are no question, or the action is not one of this connector."""


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt for one person's devices.

    Attributes:
        payload: What is to be done; text for a kind of your own.
        kind: The kind of work.
        owner: The person whose work it is.
        audience: `private` for devices of the owner alone.
        purpose: A need that the site has declared.
        deadline_at_ms: After this instant, epoch milliseconds, no answer is wanted. It is part of the
            action, so it is the same for whoever asks or looks up, and however often.
    """

    payload: Payload | str = field(repr=False)
    kind: str
    owner: str
    audience: AudienceName
    purpose: str | None
    deadline_at_ms: int

    def to_args(self) -> dict[str, Any]:
        """Return it as the arguments of an action.

        Raises:
            PayloadError: The payload has a lone surrogate.
        """
        payload = self.payload if isinstance(self.payload, str) else json.loads(dump_payload(self.payload))
        args = {
            "audience": self.audience,
            "deadline_at_ms": self.deadline_at_ms,
            "kind": self.kind,
            "owner": self.owner,
            "payload": payload,
        }
        return args if self.purpose is None else {**args, "purpose": self.purpose}


def question_of(args: object) -> Question:
    """Read the arguments of an action.

    Raises:
        QuestionError: They are no question.
    """
    if not isinstance(args, dict) or "payload" not in args:
        raise QuestionError("the arguments are no question")
    for name, value in args.items():
        kind = (_REQUIRED | _OPTIONAL).get(name)
        if name != "payload" and (kind is None or type(value) is not kind):
            raise QuestionError("the arguments have a field that is unknown or of another type")
    if not args.keys() >= _REQUIRED.keys() or args["audience"] not in get_args(AudienceName):
        raise QuestionError("the arguments lack a field, or name no known audience")
    return Question(
        _payload_of(args["kind"], args["payload"]),
        args["kind"],
        args["owner"],
        args["audience"],
        args.get("purpose"),
        args["deadline_at_ms"],
    )


def job_id_of(action: Action) -> str:
    """Return the id of the action's job at the relay: the same whenever it is asked for."""
    name = f"{_JOB}\n{action.idempotency_key}"
    return "durable-" + hashlib.sha256(name.encode("utf-8")).hexdigest()


def artifact_name(job_id: str) -> str:
    """Return the id of the artifact that a job's answer is kept in."""
    return _ANSWER + job_id.removeprefix("durable-")


def _payload_of(kind: str, value: object) -> Payload | str:
    if isinstance(value, str) and kind not in _KINDS:
        return value
    try:
        return parse_payload(kind, json.dumps(value))
    except PayloadError as error:
        raise QuestionError(f"the payload is none of its kind: {error}") from None
