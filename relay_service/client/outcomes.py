"""The plaintext of the result leg: how a job ended, and what ran it."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, cast
from urllib.parse import urlsplit

from relay_service.client.compact_json import parse_object
from relay_service.client.plaintext_fields import (
    PayloadError,
    dump_text,
    read_fields,
    read_flag,
    read_optional_text,
    read_text,
)

Disposition = Literal["ok", "error", "canceled"]
BackendClass = Literal["http", "process"]
Stop = Literal["end", "length", "stop-sequence", "unknown"]

_BACKEND_CLASSES = frozenset({"http", "process"})
_STOPS = frozenset({"end", "length", "stop-sequence", "unknown"})
_MAX_SAFE_INTEGER = 9_007_199_254_740_991


@dataclass(frozen=True, slots=True)
class OkOutcome:
    """The job was done.

    Attributes:
        text: The answer; inert text, possibly empty.
        artifact_url: Absolute address of something larger than the text.
    """

    disposition: ClassVar[Disposition] = "ok"

    text: str = field(repr=False)
    artifact_url: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.artifact_url is not None and not _is_absolute_url(self.artifact_url):
            raise PayloadError("artifactUrl is not an absolute URL")


@dataclass(frozen=True, slots=True)
class ErrorOutcome:
    """The job failed.

    Attributes:
        code: Class of the failure, for programs.
        message: The same for people; never text of the back end.
        retryable: Whether the same job may succeed later.
    """

    disposition: ClassVar[Disposition] = "error"

    code: str
    message: str
    retryable: bool

    def __post_init__(self) -> None:
        if not self.code or not self.message:
            raise PayloadError("an error has a code and a message")


@dataclass(frozen=True, slots=True)
class CanceledOutcome:
    """The job was stopped because the site withdrew it."""

    disposition: ClassVar[Disposition] = "canceled"


Outcome = OkOutcome | ErrorOutcome | CanceledOutcome


@dataclass(frozen=True, slots=True)
class RunMetadata:
    """What ran the job.

    Attributes:
        model: Name of the model.
        backend_class: An HTTP interface or a process that was started.
        duration_ms: How long it ran, milliseconds.
        stop: Why the text ended; stated with every ok outcome.
        stop_reported: Whether the back end can say why its text ended.
    """

    model: str
    backend_class: BackendClass
    duration_ms: int
    stop: Stop | None = None
    stop_reported: bool | None = None

    def __post_init__(self) -> None:
        if not self.model:
            raise PayloadError("model is empty")
        if self.backend_class not in _BACKEND_CLASSES:
            raise PayloadError("backendClass is one of http, process")
        if type(self.duration_ms) is not int or not 0 <= self.duration_ms <= _MAX_SAFE_INTEGER:
            raise PayloadError("durationMs is not a count of milliseconds")
        if self.stop is not None and self.stop not in _STOPS:
            raise PayloadError("stop is one of end, length, stop-sequence, unknown")


class SealedOutcome(NamedTuple):
    """All that a result envelope says."""

    outcome: Outcome
    ran: RunMetadata


def dump_outcome(outcome: Outcome, ran: RunMetadata) -> str:
    """Return the plaintext of a result.

    Raises:
        PayloadError: A text has a lone surrogate, or an ok outcome does not say why its text ended.
    """
    # A reader takes an ok outcome without it; a writer says "unknown" when it does not know.
    if outcome.disposition == "ok" and ran.stop is None:
        raise PayloadError("an ok outcome says why its text ended")
    return dump_text({"outcome": _outcome_fields(outcome), "ran": _ran_fields(ran)})


def parse_outcome(text: str) -> SealedOutcome:
    """Read the plaintext of a result.

    Raises:
        PayloadError: Not JSON, a key missing or unknown, or a value of the wrong type or range.
    """
    fields = read_fields(parse_object(text), "result", required={"outcome", "ran"})
    return SealedOutcome(_read_outcome(fields["outcome"]), _read_ran(fields["ran"]))


def _outcome_fields(outcome: Outcome) -> dict[str, object]:
    fields: dict[str, object] = {"outcome": outcome.disposition}
    match outcome:
        case OkOutcome():
            fields["text"] = outcome.text
            if outcome.artifact_url is not None:
                fields["artifactUrl"] = outcome.artifact_url
        case ErrorOutcome():
            fields["code"] = outcome.code
            fields["message"] = outcome.message
            fields["retryable"] = outcome.retryable
        case CanceledOutcome():
            pass
    return fields


def _ran_fields(ran: RunMetadata) -> dict[str, object]:
    fields: dict[str, object] = {
        "model": ran.model,
        "backendClass": ran.backend_class,
        "durationMs": ran.duration_ms,
    }
    if ran.stop is not None:
        fields["stop"] = ran.stop
    if ran.stop_reported is not None:
        fields["stopReported"] = ran.stop_reported
    return fields


def _read_outcome(value: object) -> Outcome:
    match value:
        case {"outcome": "ok"}:
            fields = read_fields(value, "outcome", required={"outcome", "text"}, optional={"artifactUrl"})
            return OkOutcome(read_text(fields, "text"), read_optional_text(fields, "artifactUrl"))
        case {"outcome": "error"}:
            required = {"outcome", "code", "message", "retryable"}
            fields = read_fields(value, "outcome", required=required)
            return ErrorOutcome(
                read_text(fields, "code"), read_text(fields, "message"), read_flag(fields, "retryable")
            )
        case {"outcome": "canceled"}:
            read_fields(value, "outcome", required={"outcome"})
            return CanceledOutcome()
        case _:
            raise PayloadError("outcome is one of ok, error, canceled")


def _read_ran(value: object) -> RunMetadata:
    required = {"model", "backendClass", "durationMs"}
    fields = read_fields(value, "ran", required=required, optional={"stop", "stopReported"})
    return RunMetadata(
        model=read_text(fields, "model"),
        # The constructor refuses any other text and any other number.
        backend_class=cast(BackendClass, read_text(fields, "backendClass")),
        duration_ms=cast(int, fields["durationMs"]),
        stop=cast(Stop | None, read_optional_text(fields, "stop")),
        stop_reported=read_flag(fields, "stopReported") if "stopReported" in fields else None,
    )


def _is_absolute_url(text: str) -> bool:
    # The parser drops some control characters before it looks; a URL that needs that is none.
    if not text.isprintable() or " " in text:
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and (parts.netloc or parts.path))
