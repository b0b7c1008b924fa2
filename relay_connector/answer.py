"""What came of a question, and how it is kept beside the task: one artifact, whose bytes are JSON."""

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, Self, TypeAlias

from durable_service.client.records import Records
from relay_service.client.outcomes import ErrorOutcome, OkOutcome
from relay_service.client.site import JobResult

Disposition: TypeAlias = Literal["ok", "error", "canceled", "none"]

PREFIX: Final = "artifact:"


class WhyNone(StrEnum):
    """Why there is no answer, and never will be, though the prompt was given to a device."""

    EXPIRED = "expired"
    GIVEN_UP = "given-up"
    CANCELLED = "cancelled"
    DROPPED = "dropped"
    TOO_LARGE = "too-large"


_NONE_TEXTS: Final = {
    WhyNone.EXPIRED: "its deadline passed",
    WhyNone.GIVEN_UP: "the device that had the prompt is gone or gave up",
    WhyNone.CANCELLED: "it was withdrawn",
    WhyNone.DROPPED: "the relay did not keep it for long enough",
    WhyNone.TOO_LARGE: "it is larger than an artifact may be",
}


class NoAnswerError(Exception):
    """There is no text: the device reports an error or a cancel, or nothing came of the question at all."""


@dataclass(frozen=True, slots=True)
class Answer:
    """All that will ever come of one question.

    Attributes:
        disposition: `ok`; `error` when the device could or would not answer; `canceled` when it stopped
            because the task was cancelled; `none` when no device reported anything that can be used.
        content: The text of an ok answer.
        artifact_url: Of an ok answer, where something larger is.
        code: Of an error, its class.
        message: Of an error, the same for people.
        retryable: Whether the same question may be answered when it is asked anew, as another action.
        why: With `none`, why.
        model: What ran.
        duration_ms: For how long.
        runner_id: The device; its signature was checked.
        runner_owner: Whose device it is, as the relay says.
        device_key_id: The key that signed.
    """

    disposition: Disposition
    content: str | None = field(default=None, repr=False)
    artifact_url: str | None = field(default=None, repr=False)
    code: str | None = None
    message: str | None = None
    retryable: bool = False
    why: WhyNone | None = None
    model: str | None = None
    duration_ms: int | None = None
    runner_id: str | None = None
    runner_owner: str | None = None
    device_key_id: str | None = None

    @property
    def text(self) -> str:
        """The text of the answer.

        Raises:
            NoAnswerError: There is none.
        """
        if self.disposition == "ok":
            return self.content or ""
        if self.disposition == "error":
            raise NoAnswerError(f"the device could not answer: {self.code}: {self.message}")
        why = _NONE_TEXTS[self.why] if self.why is not None else "the device stopped when it was withdrawn"
        raise NoAnswerError(f"the question has no answer: {why}")

    @classmethod
    def of(cls, result: JobResult) -> Self:
        """Return what a verified result says."""
        facts: dict[str, Any] = {}
        match result.outcome:
            case OkOutcome(text=text, artifact_url=url):
                facts = {"content": text, "artifact_url": url}
            case ErrorOutcome(code=code, message=message, retryable=retryable):
                facts = {"code": code, "message": message, "retryable": retryable}
            case _:
                pass
        return cls(
            result.disposition,
            model=result.ran.model,
            duration_ms=result.ran.duration_ms,
            runner_id=result.runner_id,
            runner_owner=result.runner_owner,
            device_key_id=result.device_key_id,
            **facts,
        )

    @classmethod
    def none(cls, why: WhyNone) -> Self:
        """Return that there is no answer."""
        return cls("none", why=why, retryable=True)

    def to_bytes(self) -> bytes:
        """Return it as it is kept; always the same bytes for the same result."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        known = {name: value for name, value in fields.items() if value is not None}
        return json.dumps(known, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode("utf-8")

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what `to_bytes` wrote.

        Raises:
            ValueError: It is something else.
        """
        try:
            fields = json.loads(content)
            why = fields.pop("why", None)
            return cls(**fields, why=None if why is None else WhyNone(why))
        except (TypeError, AttributeError, ValueError):
            # Without the cause: it may quote the content.
            raise ValueError("these bytes are no answer") from None


async def read_answer(records: Records, result_ref: str) -> Answer:
    """Return the answer that a confirmed action refers to, as a handler reads it.

    A caller without a lease reads the bytes of `artifact_id_of(result_ref)`, which are JSON.

    Raises:
        DurableError: It is not kept any more.
        ValueError: The reference is none of an answer.
    """
    return Answer.from_bytes(await records.read_artifact(artifact_id_of(result_ref)))


def artifact_id_of(result_ref: str) -> str:
    """Return the id of the artifact that a confirmed action refers to.

    Raises:
        ValueError: The reference is none of an answer.
    """
    if not result_ref.startswith(PREFIX):
        raise ValueError("this result is none of a question")
    return result_ref.removeprefix(PREFIX)
