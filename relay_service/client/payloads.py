"""Plaintexts of the two legs: what a site asks for and what a device answers.

A payload says what to work on and nothing about how: there is no field for a model, a tool, an address or a
sampling parameter, and an unknown key is refused. Lengths are counted in UTF-16 code units, as every peer
counts them. Text never shows in a value's text form.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, cast

from relay_service.client.compact_json import parse_object
from relay_service.client.outcomes import (
    BackendClass,
    CanceledOutcome,
    Disposition,
    ErrorOutcome,
    OkOutcome,
    Outcome,
    RunMetadata,
    SealedOutcome,
    Stop,
    dump_outcome,
    parse_outcome,
)
from relay_service.client.plaintext_fields import (
    PayloadError,
    dump_text,
    read_fields,
    read_optional_text,
    read_text,
    utf16_length,
)

__all__ = [
    "BackendClass",
    "CanceledOutcome",
    "ChatMessage",
    "ChatPayload",
    "Disposition",
    "ErrorOutcome",
    "GeneratePayload",
    "Kind",
    "OkOutcome",
    "Outcome",
    "Payload",
    "PayloadError",
    "Role",
    "RunMetadata",
    "SealedOutcome",
    "SizeClass",
    "Stop",
    "dump_outcome",
    "dump_payload",
    "parse_outcome",
    "parse_payload",
    "size_class",
    "utf16_length",
]

Kind = Literal["llm.generate", "llm.chat"]
Role = Literal["system", "user", "assistant"]
SizeClass = Literal["small", "medium", "large"]

FIELD_LENGTH = 1_000_000
TOTAL_LENGTH = 4_000_000
MESSAGES = 256
SMALL_LENGTH = 4_000
MEDIUM_LENGTH = 64_000

_ROLES = frozenset({"system", "user", "assistant"})


@dataclass(frozen=True, slots=True)
class GeneratePayload:
    """One prompt to complete.

    Attributes:
        prompt: 1 to 1,000,000 UTF-16 code units.
        system: Instruction for the whole answer, at most 1,000,000 units.
    """

    kind: ClassVar[Kind] = "llm.generate"

    prompt: str = field(repr=False)
    system: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.prompt:
            raise PayloadError("prompt is empty")
        _check_lengths({"prompt": self.prompt, "system": self.system or ""})

    @property
    def text_length(self) -> int:
        """UTF-16 code units of all the text."""
        return utf16_length(self.prompt) + utf16_length(self.system or "")


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn of a conversation; the content has at most 1,000,000 UTF-16 code units."""

    role: Role
    content: str = field(repr=False)

    def __post_init__(self) -> None:
        if self.role not in _ROLES:
            raise PayloadError("role is one of system, user, assistant")
        _check_lengths({"content": self.content})


@dataclass(frozen=True, slots=True)
class ChatPayload:
    """A conversation to continue.

    Attributes:
        messages: 1 to 256, oldest first; all text together at most 4,000,000 UTF-16 code units.
        system: Instruction for the whole conversation, at most 1,000,000 units.
    """

    kind: ClassVar[Kind] = "llm.chat"

    messages: Sequence[ChatMessage]
    system: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages", tuple(self.messages))
        if not 1 <= len(self.messages) <= MESSAGES:
            raise PayloadError(f"there are 1 to {MESSAGES} messages")
        _check_lengths({"system": self.system or ""})
        if self.text_length > TOTAL_LENGTH:
            raise PayloadError(f"all text together is over {TOTAL_LENGTH} UTF-16 code units")

    @property
    def text_length(self) -> int:
        """UTF-16 code units of all the text."""
        contents = sum(utf16_length(message.content) for message in self.messages)
        return contents + utf16_length(self.system or "")


Payload = GeneratePayload | ChatPayload


def dump_payload(payload: Payload) -> str:
    """Return the plaintext of a payload.

    Raises:
        PayloadError: A text has a lone surrogate.
    """
    fields: dict[str, object]
    match payload:
        case GeneratePayload():
            fields = {"prompt": payload.prompt}
        case ChatPayload():
            fields = {
                "messages": [
                    {"role": message.role, "content": message.content} for message in payload.messages
                ]
            }
    if payload.system is not None:
        fields["system"] = payload.system
    return dump_text(fields)


def parse_payload(kind: str, text: str) -> Payload:
    """Read the plaintext of a payload of that kind.

    Raises:
        PayloadError: An unknown kind, not JSON, a key missing or unknown, a wrong type, or a limit broken.
    """
    match kind:
        case "llm.generate":
            fields = read_fields(parse_object(text), "payload", required={"prompt"}, optional={"system"})
            return GeneratePayload(read_text(fields, "prompt"), read_optional_text(fields, "system"))
        case "llm.chat":
            fields = read_fields(parse_object(text), "payload", required={"messages"}, optional={"system"})
            return ChatPayload(_read_messages(fields["messages"]), read_optional_text(fields, "system"))
        case _:
            raise PayloadError("there is no such kind")


def size_class(text_length_utf16: int) -> SizeClass:
    """Return the bucket that a stub declares for a payload with so much text.

    Args:
        text_length_utf16: UTF-16 code units of all the payload's text.
    """
    if text_length_utf16 <= SMALL_LENGTH:
        return "small"
    return "medium" if text_length_utf16 <= MEDIUM_LENGTH else "large"


def _read_messages(value: object) -> Sequence[ChatMessage]:
    match value:
        # The count is looked at first, so that a long list is not read to its end.
        case list() if 1 <= len(value) <= MESSAGES:
            return [_read_message(item) for item in value]
        case _:
            raise PayloadError(f"messages is not a list of 1 to {MESSAGES}")


def _read_message(value: object) -> ChatMessage:
    fields = read_fields(value, "message", required={"role", "content"})
    # The constructor refuses any other role.
    return ChatMessage(cast(Role, read_text(fields, "role")), read_text(fields, "content"))


def _check_lengths(texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        if utf16_length(text) > FIELD_LENGTH:
            raise PayloadError(f"{name} is over {FIELD_LENGTH} UTF-16 code units")
