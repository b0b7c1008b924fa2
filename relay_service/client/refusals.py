"""Why an envelope is not opened, and why one is not sealed."""

from enum import StrEnum


class Refusal(StrEnum):
    """Why an envelope is not opened, in the order in which it is asked."""

    NOT_FOR_US = "not-for-us"
    EXPIRED = "expired"
    UNOPENABLE = "unopenable"
    MALFORMED = "malformed"
    BAD_SIGNATURE = "bad-signature"
    CONTEXT_MISMATCH = "context-mismatch"


class EnvelopeRefused(Exception):  # noqa: N818 - a verdict on what was received, not a failure
    """An envelope that must not be used. Carries the reason and nothing of the content."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason.value)
        self.reason = reason


class SealError(ValueError):
    """Something that cannot be sealed: the recipient, the text or its size."""
