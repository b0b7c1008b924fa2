"""Cumulative credit: how much a peer is willing to have been sent on this stream."""

from service_common.errors import FieldViolation, invalid_argument

MOST_AHEAD = 1_000_000


class CreditLimit:
    """A limit that only grows, against a count of what was sent."""

    __slots__ = ("limit", "sent")

    def __init__(self, limit: int) -> None:
        self.limit = 0
        self.sent = 0
        self.raise_to(limit)

    @property
    def free(self) -> int:
        """How much may still be sent."""
        return self.limit - self.sent

    def raise_to(self, limit: int) -> None:
        """Raises the limit; a lower one is a late item and changes nothing.

        Raises:
            ServiceError: FIELD_INVALID when it is too far ahead of what was sent.
        """
        if limit > self.sent + MOST_AHEAD:
            raise invalid_argument(
                [FieldViolation("credit.limit", f"must be at most {MOST_AHEAD} above what was sent")]
            )
        self.limit = max(self.limit, limit)
