"""Reading a chat completion, streamed as server-sent events or answered whole. No I/O."""

import json
from dataclasses import dataclass, field
from typing import Any

from relay_service.client.backends.base import BackendFailure
from relay_service.client.backends.output import CappedOutput
from relay_service.client.outcomes import Stop

# JSON can spell one byte of text as six (a backslash, a u and four digits); the rest is the frame around it.
_ESCAPED_BYTES = 6
_FRAME_BYTES = 65_536

# No stop sequence is ever sent, so "stop" can only be the model's own end.
_STOPS: dict[str, Stop] = {"stop": "end", "eos": "end", "length": "length"}


@dataclass(frozen=True, slots=True)
class Completion:
    """What the model said and why it stopped."""

    text: str = field(repr=False)
    stop: Stop


class CompletionStream:
    """Takes the bytes of an event stream as they arrive."""

    def __init__(self, limit_bytes: int) -> None:
        self._output = CappedOutput(limit_bytes)
        self._limit = document_limit(limit_bytes)
        self._pending = bytearray()
        self._event: list[bytes] = []
        self._stop: Stop | None = None
        self.ended = False

    def feed(self, data: bytes) -> None:
        """Take more bytes.

        Raises:
            BackendFailure: The answer is over its limit, or this is no completion.
        """
        self._pending += data
        # Only whole lines leave the buffer: a chunk may end inside a line, even inside a character.
        *lines, rest = self._pending.split(b"\n")
        self._pending = rest
        for line in lines:
            self._take_line(bytes(line.rstrip(b"\r")))
        if len(self._pending) + sum(map(len, self._event)) > self._limit:
            raise BackendFailure("output-too-large")

    def finish(self) -> Completion:
        """Return the completion at the end of the stream.

        Raises:
            BackendFailure: The stream ended before the model did.
        """
        self._take_line(bytes(self._pending.rstrip(b"\r")))
        self._take_line(b"")
        if self._stop is None and not self.ended:
            raise BackendFailure("service_unavailable")
        return Completion(self._output.text(), self._stop or "unknown")

    def _take_line(self, line: bytes) -> None:
        if self.ended:
            return
        if line.startswith(b"data:"):
            self._event.append(line[5:].removeprefix(b" "))
        elif not line and self._event:
            event, self._event = b"\n".join(self._event), []
            self._take_event(event)

    def _take_event(self, event: bytes) -> None:
        if event.strip() == b"[DONE]":
            self.ended = True
            return
        choice = _first_choice(_parsed(event))
        if choice is None:
            return
        delta = choice.get("delta")
        self._output.add_text(_content(delta if isinstance(delta, dict) else {}))
        if choice.get("finish_reason") is not None:
            self._stop = _stop(choice)


def read_document(body: bytes, limit_bytes: int) -> Completion:
    """Read a completion that was answered whole, as some servers do even when asked to stream.

    Raises:
        BackendFailure: The answer is over its limit, or this is no completion.
    """
    choice = _first_choice(_parsed(body))
    message = None if choice is None else choice.get("message")
    if choice is None or not isinstance(message, dict):
        raise BackendFailure("service_unavailable")
    output = CappedOutput(limit_bytes)
    output.add_text(_content(message))
    return Completion(output.text(), _stop(choice))


def document_limit(limit_bytes: int) -> int:
    """Return how many bytes of JSON may stand around an answer of so many bytes."""
    return limit_bytes * _ESCAPED_BYTES + _FRAME_BYTES


def _parsed(document: bytes) -> dict[str, Any]:
    try:
        value = json.loads(document.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise BackendFailure("service_unavailable") from None
    if not isinstance(value, dict) or value.get("error"):
        raise BackendFailure("service_unavailable")
    return value


def _first_choice(value: dict[str, Any]) -> dict[str, Any] | None:
    """Return the only choice asked for; events about usage have none."""
    match value.get("choices"):
        case [dict() as choice, *_]:
            return choice
        case _:
            return None


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""


def _stop(choice: dict[str, Any]) -> Stop:
    return _STOPS.get(str(choice.get("finish_reason")), "unknown")
