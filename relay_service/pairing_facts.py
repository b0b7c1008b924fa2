"""What the pairing desk takes and gives."""

from dataclasses import dataclass
from typing import Final

from relay_service.core.pairing import PAIRING_POLL_MS, Pairing, PairingState, Platform

STARTS_PER_MINUTE: Final = 10


@dataclass(frozen=True, slots=True)
class PairingSettings:
    """How a relay pairs.

    Attributes:
        offered: whether devices may pair by code at all.
        verification_url: where a person approves; empty for the operator's command.
        control_plane_key: Ed25519 key that signs grants, 32 bytes, disclosed on approval.
        starts_per_minute: of one peer.
    """

    offered: bool = True
    verification_url: str = ""
    control_plane_key: bytes | None = None
    starts_per_minute: int = STARTS_PER_MINUTE


@dataclass(frozen=True, slots=True)
class StartProof:
    """A device's word that it holds its key; see `start_statement`."""

    issued_at_ms: int
    nonce: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class StartedPairing:
    """What a device is told at the start. The text form does not show the device code."""

    device_code: str
    user_code: str
    verification_url: str
    expires_at_ms: int
    life_ms: int
    poll_interval_ms: int = PAIRING_POLL_MS

    def __repr__(self) -> str:
        return f"StartedPairing(user_code={self.user_code!r})"


@dataclass(frozen=True, slots=True)
class PairingApproval:
    """What a device learns on approval, beside the sites of its owner."""

    runner_id: str
    owner: str
    control_plane_key: bytes | None


@dataclass(frozen=True, slots=True)
class PairingOutcome:
    """How far a pairing has come.

    Attributes:
        approval: set when approved, and only then.
        remaining_ms: until a pending one expires.
    """

    state: PairingState
    approval: PairingApproval | None = None
    remaining_ms: int = 0


EXPIRED: Final = PairingOutcome(PairingState.EXPIRED)


@dataclass(frozen=True, slots=True)
class PendingPairing:
    """A device that waits, as a person who decides sees it."""

    user_code: str
    key_id: str
    label: str
    platform: Platform
    client_version: str
    expires_at_ms: int


def pending_pairing(pairing: Pairing) -> PendingPairing:
    """A pairing as a person who decides sees it."""
    about = pairing.introduction
    return PendingPairing(
        pairing.user_code,
        about.identity.key_id,
        about.label,
        about.platform,
        about.client_version,
        pairing.expires_at_ms,
    )
