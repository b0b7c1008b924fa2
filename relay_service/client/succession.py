"""Succession: a site's old identity key vouches for the new one.

A chain is oldest first, the immediate predecessor last. A link never says whom it vouches for: the verifier
knows the successor and supplies its key id.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from relay_service.client.keys import Keys
from relay_service.core.identity import (
    PublicIdentity,
    decode_base64url,
    encode_base64url,
    is_key_id,
    verify_binding,
)
from service_common.verification import verify_signature

MAX_LINKS = 64

_DOMAIN = "byollm/v1/site-succession"
_JSON_KEYS = frozenset({"identity", "signature"})


@dataclass(frozen=True, slots=True)
class SuccessionLink:
    """A predecessor and its signature over the pair (its own key id, the successor's)."""

    identity: PublicIdentity
    signature: bytes

    def to_json(self) -> dict[str, object]:
        """Return the JSON object form."""
        return {"identity": self.identity.to_json(), "signature": encode_base64url(self.signature)}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Read the JSON object form.

        Raises:
            ValueError: Not an object, a key missing or unknown, or a value of another form.
        """
        if not isinstance(value, Mapping) or value.keys() != _JSON_KEYS:
            raise ValueError("a succession link has exactly the keys identity and signature")
        match value["signature"]:
            case str() as signature:
                return cls(PublicIdentity.from_json(value["identity"]), decode_base64url(signature))
            case _:
                raise ValueError("signature must be text")


class ChainOutcome(StrEnum):
    """What a chain proves."""

    ADOPTED = "adopted"
    UNKNOWN = "unknown"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer about a chain.

    Attributes:
        outcome: `ADOPTED`: the successor takes the place of `predecessor`. `UNKNOWN`: a sound chain that
            reaches nobody known, so the successor is a stranger. `BROKEN`: refuse it and keep the old pin.
        predecessor: Key id of the nearest known predecessor, when adopted.
        path: Key ids from the predecessor (when unknown: from the oldest link) to the successor; empty when
            broken.
    """

    outcome: ChainOutcome
    predecessor: str | None = None
    path: tuple[str, ...] = ()


def sign_link(predecessor_keys: Keys, successor_key_id: str) -> SuccessionLink:
    """Vouch for a successor.

    Raises:
        ValueError: Not a key id, or the predecessor's own.
    """
    if not is_key_id(successor_key_id) or successor_key_id == predecessor_keys.key_id:
        raise ValueError("the successor is named by the key id of another identity")
    statement = _statement(predecessor_keys.key_id, successor_key_id)
    return SuccessionLink(predecessor_keys.public, predecessor_keys.signer.sign(statement))


def verify_chain(
    successor: PublicIdentity, links: Sequence[SuccessionLink], known: Callable[[str], bool]
) -> Verdict:
    """Follow a chain back from a successor that is itself not known.

    Every link is verified, also those older than the first known predecessor: a chain with one bad link
    proves nothing.

    Args:
        successor: Who asks to be adopted.
        links: Oldest first, the immediate predecessor last; at most 64.
        known: Tells whether a key id was ever approved.
    """
    if len(links) > MAX_LINKS or not verify_binding(successor):
        return Verdict(ChainOutcome.BROKEN)
    path = (*(link.identity.key_id for link in links), successor.key_id)
    sound = all(_vouches(link, heir) for link, heir in zip(links, path[1:], strict=True))
    # A key that comes back later in its own chain would make "predecessor" mean nothing.
    if not sound or len(set(path)) != len(path):
        return Verdict(ChainOutcome.BROKEN)
    for position in range(len(links) - 1, -1, -1):
        if known(path[position]):
            return Verdict(ChainOutcome.ADOPTED, path[position], path[position:])
    return Verdict(ChainOutcome.UNKNOWN, path=path)


def _vouches(link: SuccessionLink, successor_key_id: str) -> bool:
    if not verify_binding(link.identity):
        return False
    statement = _statement(link.identity.key_id, successor_key_id)
    return verify_signature(link.identity.identity, statement, link.signature)


def _statement(predecessor_key_id: str, successor_key_id: str) -> bytes:
    return f"{_DOMAIN}:{predecessor_key_id}:{successor_key_id}".encode("ascii")
