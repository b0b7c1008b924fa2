"""Which of a caller's keys signs: while its keys change hands, the one that the service takes."""

from collections.abc import Sequence
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
        self._refusals = 0
        self.position = 0

    @property
    def current(self) -> Signer:
        """What signs now."""
        return self._signers[self.position]

    def accepted(self, position: int) -> None:
        """Note that the service takes this key."""
        if position == self.position:
            self._refusals = 0

    def refused(self, position: int) -> bool:
        """Note that the service does not take this key, and move on to the next.

        Returns:
            Whether another try may help; False once every key has been refused in a row.
        """
        if position != self.position:
            # Somebody else has moved on already.
            return True
        self._refusals += 1
        if self._refusals >= len(self._signers):
            self._refusals = 0
            self.position = 0
            return False
        self.position = (self.position + 1) % len(self._signers)
        return True


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
