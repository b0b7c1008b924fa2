"""Public keys of a party: their encodings, their key id, and the check that they belong together.

Only public-key operations live here, so that the relay server can use them: nothing in this module can
sign or open anything.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

PUBLIC_KEY_BYTES = 32
SIGNATURE_BYTES = 64

_BINDING_PREFIX = "byollm/v1/encryption-key:"
_KEY_ID_PREFIX = "BYOLLM"
_KEY_ID_BYTES = 15
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_KEY_ID = re.compile(rf"{_KEY_ID_PREFIX}(?:-[{_CROCKFORD}]{{4}}){{6}}")
_JSON_KEYS = frozenset({"identity", "encryption", "encryptionSig"})


@dataclass(frozen=True, slots=True)
class PublicIdentity:
    """The public half of a party's keys.

    Lengths are not checked here: a malformed value is a value that `verify_binding` refuses.

    Attributes:
        identity: Raw Ed25519 public key, 32 bytes. This is the key that a peer pins.
        encryption: Raw X25519 public key, 32 bytes.
        encryption_signature: Ed25519 signature by `identity` over `encryption`, 64 bytes.
    """

    identity: bytes
    encryption: bytes
    encryption_signature: bytes

    @property
    def key_id(self) -> str:
        """Fingerprint of the identity key; see `key_id`."""
        return key_id(self.identity)

    def to_json(self) -> dict[str, str]:
        """Return the JSON object form, each value unpadded base64url."""
        return {
            "identity": encode_base64url(self.identity),
            "encryption": encode_base64url(self.encryption),
            "encryptionSig": encode_base64url(self.encryption_signature),
        }

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Read the JSON object form.

        Raises:
            ValueError: Not an object, a key missing or unknown, or a value that is not strict base64url.
        """
        if not isinstance(value, Mapping) or value.keys() != _JSON_KEYS:
            raise ValueError("a public identity has exactly the keys identity, encryption, encryptionSig")
        return cls(
            identity=_decode_field(value, "identity"),
            encryption=_decode_field(value, "encryption"),
            encryption_signature=_decode_field(value, "encryptionSig"),
        )


def verify_binding(identity: PublicIdentity) -> bool:
    """Tell whether the identity key has signed the encryption key.

    Anyone who receives a public identity checks this before pinning it or sealing to it. Garbage and wrong
    lengths answer False; nothing is raised.
    """
    # libsodium reads a fixed number of bytes through the key pointer and the binding checks no length.
    if len(identity.identity) != PUBLIC_KEY_BYTES or len(identity.encryption) != PUBLIC_KEY_BYTES:
        return False
    if len(identity.encryption_signature) != SIGNATURE_BYTES:
        return False
    return _signature_holds(
        identity.identity, binding_bytes(identity.encryption), identity.encryption_signature
    )


def binding_bytes(encryption: bytes) -> bytes:
    """Return the bytes that an identity key signs to vouch for an encryption key."""
    return f"{_BINDING_PREFIX}{encode_base64url(encryption)}".encode("ascii")


@lru_cache(maxsize=4096)
def key_id(identity: bytes) -> str:
    """Return the fingerprint of a raw identity key: `BYOLLM-` and six groups of four characters.

    It is the first 120 bits of the SHA-256 of the key, in Crockford base32, most significant bits first.
    """
    bits = int.from_bytes(hashlib.sha256(identity).digest()[:_KEY_ID_BYTES])
    digits = "".join(_CROCKFORD[(bits >> shift) & 31] for shift in range(_KEY_ID_BYTES * 8 - 5, -1, -5))
    groups = (digits[start : start + 4] for start in range(0, len(digits), 4))
    return "-".join((_KEY_ID_PREFIX, *groups))


def is_key_id(text: str) -> bool:
    """Tell whether the text has the form of a key id."""
    return _KEY_ID.fullmatch(text) is not None


def encode_base64url(data: bytes) -> str:
    """Return the unpadded base64url text of the bytes."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def decode_base64url(text: str) -> bytes:
    """Return the bytes of strict base64url text.

    Raises:
        ValueError: Padding, a character outside the alphabet, an impossible length, or unused low bits set.
    """
    decoded = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    # The decoder skips what it does not know; only the one canonical spelling encodes back to itself.
    if encode_base64url(decoded) != text:
        raise ValueError("not canonical unpadded base64url")
    return decoded


def _decode_field(value: Mapping[str, object], name: str) -> bytes:
    match value[name]:
        case str() as text:
            return decode_base64url(text)
        case _:
            raise ValueError(f"{name} must be text")


# A peer's binding is asked for again and again and never changes; a check costs about 100 µs.
@lru_cache(maxsize=4096)
def _signature_holds(public_key: bytes, message: bytes, signature: bytes) -> bool:
    try:
        crypto_sign_open(signature + message, public_key)
    except BadSignatureError:
        return False
    return True
