"""Which of a caller's keys signs: while its keys change hands, the one that the service takes."""

from collections.abc import Container, Sequence
from typing import Final

from service_common.signing import Signer

BAD_SIGNATURE: Final = "BAD_SIGNATURE"
"""The reason by which a service refuses a key."""


class SigningKeys:
    """The present key and earlier ones: a service may not know the one yet, or no longer the others.

    Attributes:
        position: Which one is in use; 0 is the present one.
    """

    def __init__(self, signers: Sequence[Signer]) -> None:
        """Begin with the first."""
        self._signers = tuple(signers)
        self.position = 0

    @property
    def current(self) -> Signer:
        """What signs now."""
        return self._signers[self.position]

    def at(self, position: int) -> Signer:
        """Return the key at this position."""
        return self._signers[position]

    def untried(self, refused: Container[int]) -> int | None:
        """Return the position to try next: the one in use, or those behind it; None when all are refused.

        Each caller counts the refusals of its own: what somebody else has met, on a stream or in
        another call, may be from before the service changed its mind.
        """
        count = len(self._signers)
        places = ((self.position + step) % count for step in range(count))
        return next((place for place in places if place not in refused), None)

    def accepted(self, position: int) -> None:
        """Note that the service takes this key, after it refused another."""
        self.position = position

    def refused(self, position: int) -> None:
        """Note that the service does not take this key, and move on to the next."""
        # Unless somebody else has moved on already.
        if position == self.position:
            self.position = (self.position + 1) % len(self._signers)


class CurrentSigner(Signer):
    """Signs by whichever key is in use at that moment."""

    __slots__ = ("_keys",)

    def __init__(self, keys: SigningKeys) -> None:
        """Sign by these keys."""
        self._keys = keys

    def sign(self, message: bytes) -> bytes:
        return self._keys.current.sign(message)

    def __repr__(self) -> str:
        return f"CurrentSigner({self._keys.current!r})"
