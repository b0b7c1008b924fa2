"""The bytes the published relay and its callers exchange: keys, request signatures and envelopes."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson
from nacl import bindings
from nacl.exceptions import CryptoError

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_SIGNATURE_BYTES = bindings.crypto_sign_BYTES
ENVELOPE_MAX_AGE_MS = 86_400_000


class EnvelopeError(Exception):
    """An envelope is not what its reader was promised."""


def encode(raw: bytes) -> str:
    """Unpadded base64url, the form of every binary value on this wire."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """The bytes of unpadded base64url."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def key_id(identity_public: bytes) -> str:
    """The fingerprint that names a party: 120 bits of SHA-256 in Crockford base32."""
    bits = int.from_bytes(sha256(identity_public).digest()[:15], "big")
    symbols = "".join(_CROCKFORD[bits >> shift & 31] for shift in range(115, -1, -5))
    return "BYOLLM-" + "-".join(symbols[at : at + 4] for at in range(0, 24, 4))


@dataclass(frozen=True, slots=True)
class Party:
    """A site or a device: its Ed25519 identity, its X25519 key, and the name the relay knows it by."""

    caller_id: str
    identity_public: bytes
    identity_secret: bytes
    encryption_public: bytes
    encryption_secret: bytes
    key_id: str

    @classmethod
    def from_seeds(cls, caller_id: str, identity_seed: bytes, encryption_secret: bytes) -> "Party":
        """The party whose keys grow from two secrets of 32 bytes."""
        identity_public, identity_secret = bindings.crypto_sign_seed_keypair(identity_seed)
        encryption_public = bindings.crypto_scalarmult_base(encryption_secret)
        return cls(
            caller_id, identity_public, identity_secret, encryption_public, encryption_secret,
            key_id(identity_public),
        )  # fmt: skip

    def sign(self, message: bytes) -> str:
        return encode(bindings.crypto_sign(message, self.identity_secret)[:_SIGNATURE_BYTES])

    def public_identity(self) -> dict[str, str]:
        """What the relay and the other end learn of this party."""
        encryption = encode(self.encryption_public)
        return {
            "identity": encode(self.identity_public),
            "encryption": encryption,
            "encryptionSig": self.sign(f"byollm/v1/encryption-key:{encryption}".encode()),
        }

    def request_signature(self, endpoint: str, issued_at_ms: int, body: bytes) -> str:
        """The signature over one call: endpoint, caller, time and the digest of the exact body bytes."""
        digest = sha256(body).hexdigest()
        return self.sign(f"byollm/v1/request\n{endpoint}\n{self.caller_id}\n{issued_at_ms}\n{digest}".encode())


@dataclass(frozen=True, slots=True)
class Route:
    """What an envelope is bound to."""

    job_id: str
    sender_key_id: str
    recipient_key_id: str
    direction: str


def seal(route: Route, sender: Party, recipient_public: bytes, plaintext: str, deadline_at_ms: int) -> dict[str, Any]:
    """Signs a plaintext, then seals it to the recipient's X25519 key."""
    body = orjson.dumps({
        "v": "byollm/v1/envelope",
        "jobId": route.job_id,
        "senderKeyId": route.sender_key_id,
        "recipientKeyId": route.recipient_key_id,
        "deadlineAt": deadline_at_ms,
        "direction": route.direction,
        "plaintext": plaintext,
    })  # fmt: skip
    inner = orjson.dumps({"body": encode(body), "signature": sender.sign(body)})
    return {
        "ciphertext": encode(bindings.crypto_box_seal(inner, recipient_public)),
        "recipientKeyId": route.recipient_key_id,
        "senderKeyId": route.sender_key_id,
        "direction": route.direction,
        "deadlineAt": deadline_at_ms,
    }


def open_envelope(route: Route, envelope: Mapping[str, Any], recipient: Party, sender_public: bytes) -> str:
    """Opens an envelope, verifies its sender, and checks that it belongs to this job, these parties, this leg.

    Raises:
        EnvelopeError: any of that does not hold.
    """
    try:
        ciphertext = decode(envelope["ciphertext"])
        inner = bindings.crypto_box_seal_open(ciphertext, recipient.encryption_public, recipient.encryption_secret)
        parts = orjson.loads(inner)
        body = decode(parts["body"])
        bindings.crypto_sign_open(decode(parts["signature"]) + body, sender_public)
    except (CryptoError, ValueError, KeyError) as error:
        raise EnvelopeError("the envelope does not open, or its signature does not hold") from error
    signed = orjson.loads(body)
    found = Route(signed["jobId"], signed["senderKeyId"], signed["recipientKeyId"], signed["direction"])
    if found != route or signed["deadlineAt"] != envelope["deadlineAt"]:
        raise EnvelopeError("the envelope belongs to another job, party or leg")
    plaintext: str = signed["plaintext"]
    return plaintext
