"""Pairing: a new device shows a code, and a person approves it.

Two codes belong to a pairing. The device code is the device's secret and is kept as a hash alone; the user
code is short, shown to a person, and worth nothing without a person who compares the key id as well.
"""

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from relay_service.core.identity import PublicIdentity, encode_base64url

PAIRING_LIFE_MS = 600_000
PAIRING_POLL_MS = 2_000
OUTSTANDING_PAIRINGS = 500
LABEL_CHARACTERS = 120
DEVICE_CODE_CHARACTERS = 43
USER_CODE_CHARACTERS = 9

_DEVICE_CODE_BYTES = 32
_USER_CODE_BYTES = 8
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_START_DOMAIN = "sealwork/v1/pairing"
_START_METHOD = "/sealwork.relay.v1.DaemonPlaneService/StartPairing"
_CODE_DOMAIN = "sealwork/v1/pairing-code"


class Platform(StrEnum):
    """What a device runs on."""

    DARWIN = "darwin"
    LINUX = "linux"
    WIN32 = "win32"


class PairingState(StrEnum):
    """How far a pairing has come; lapsed and never known are both `EXPIRED`."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"


class PairingRefusal(StrEnum):
    """Why a store does not do what it is asked."""

    AT_CAPACITY = "at-capacity"
    CODE_TAKEN = "code-taken"
    NOT_FOUND = "not-found"


@dataclass(frozen=True, slots=True)
class PairingIntroduction:
    """What a device says of itself when it asks to be paired.

    Attributes:
        label: what its owner calls it, 1 to 120 characters.
    """

    identity: PublicIdentity
    label: str
    platform: Platform
    client_version: str


@dataclass(frozen=True, slots=True)
class Codes:
    """The two codes of one pairing. The text form shows the user code alone."""

    device_code: str
    user_code: str

    def __repr__(self) -> str:
        return f"Codes(user_code={self.user_code!r})"


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's word on a pairing.

    Attributes:
        state: `APPROVED` or `DENIED`.
        owner: whose device it is; empty when denied.
        runner_id: its name from now on; empty when denied.
    """

    state: PairingState
    owner: str = ""
    runner_id: str = ""


DENIAL = Decision(PairingState.DENIED)


@dataclass(frozen=True, slots=True)
class Pairing:
    """One pairing as a store keeps it.

    Attributes:
        pairing_id: hash of the device code; see `pairing_id`.
        expires_at_ms: by the store's clock.
        decision: None while nobody has decided.
    """

    pairing_id: str
    user_code: str
    introduction: PairingIntroduction
    expires_at_ms: int
    decision: Decision | None = None

    @property
    def state(self) -> PairingState:
        """What was decided; an expired pairing is none any more."""
        return PairingState.PENDING if self.decision is None else self.decision.state


def draw_codes(random_bytes: Callable[[int], bytes]) -> Codes:
    """Makes the codes of a new pairing.

    Args:
        random_bytes: source of that many unpredictable bytes.
    """
    device_code = encode_base64url(random_bytes(_DEVICE_CODE_BYTES))
    # 256 is a multiple of 32, so that every letter is equally likely.
    letters = "".join(_CROCKFORD[byte % 32] for byte in random_bytes(_USER_CODE_BYTES))
    return Codes(device_code, f"{letters[:4]}-{letters[4:]}")


def read_user_code(text: str) -> str:
    """The code as it is kept, of what a person has typed."""
    return text.strip().upper()


def pairing_id(device_code: str) -> str:
    """What a pairing is kept under: whoever reads the store learns no code that opens anything."""
    digest = hashlib.sha256(device_code.encode("utf-8", "surrogatepass")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def decide(pairing: Pairing, decision: Decision) -> Pairing:
    """The pairing after a decision: the first one stays."""
    return pairing if pairing.decision is not None else replace(pairing, decision=decision)


def start_statement(identity: bytes, issued_at_ms: int, nonce: bytes) -> bytes:
    """What a device signs to start a pairing: that it holds the key, now.

    Args:
        identity: raw Ed25519 public key.
        issued_at_ms: epoch ms; the relay takes it within 120,000 ms of its clock.
        nonce: 16 random bytes, never used before.
    """
    fields = (encode_base64url(identity), str(issued_at_ms), encode_base64url(nonce))
    return "\n".join((_START_DOMAIN, _START_METHOD, *fields)).encode("ascii")


def code_statement(device_code: str) -> bytes:
    """What a device signs to be told how its pairing stands, so that a stolen code tells nothing.

    The code is fresh from the relay, so the signature needs no time and no nonce of its own.
    """
    return f"{_CODE_DOMAIN}\n{device_code}".encode("utf-8", "surrogatepass")
