"""Sealing and opening: the only code that turns a plaintext into an envelope and back.

The sender signs the plaintext together with its context, and the signature travels inside the sealed box:
the relay sees neither, and gathers no evidence that could be attributed to anyone. The opener checks the
bytes that were signed and never spells them again, so any JSON spelling of the signed body will do.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from nacl.bindings import crypto_box, crypto_box_seal, crypto_box_seal_open, crypto_scalarmult_base
from nacl.exceptions import CryptoError

from relay_service.client.compact_json import parse_object
from relay_service.client.keys import Keys
from relay_service.client.refusals import EnvelopeRefused, Refusal, SealError
from relay_service.client.signed_body import (
    DOMAIN,
    BodyContext,
    Direction,
    is_instant,
    signed_inner,
    verified_body,
)
from relay_service.core.identity import PublicIdentity, decode_base64url, encode_base64url, verify_binding

__all__ = [
    "MAX_CIPHERTEXT_BYTES",
    "Direction",
    "Envelope",
    "EnvelopeRefused",
    "Refusal",
    "SealError",
    "open_envelope",
    "seal",
    "seal_with_ephemeral",
]

MAX_CIPHERTEXT_BYTES = 6_291_456

_OVERHEAD_BYTES = 48
_NONCE_BYTES = 24
_JSON_KEYS = frozenset({"ciphertext", "recipientKeyId", "senderKeyId", "direction", "deadlineAt"})


@dataclass(frozen=True, slots=True)
class Envelope:
    """Ciphertext with its routing header.

    Attributes:
        ciphertext: libsodium sealed box to the recipient's encryption key.
        recipient_key_id: Key id of the party that can open it.
        sender_key_id: Key id of the party that signed it.
        direction: Which leg of the exchange it travels.
        deadline_at_ms: When it stops being worth anything, epoch milliseconds; not the job's deadline.
    """

    ciphertext: bytes = field(repr=False)
    recipient_key_id: str
    sender_key_id: str
    direction: Direction
    deadline_at_ms: int

    def to_json(self) -> dict[str, str | int]:
        """Return the JSON object form, the ciphertext as unpadded base64url."""
        return {
            "ciphertext": encode_base64url(self.ciphertext),
            "recipientKeyId": self.recipient_key_id,
            "senderKeyId": self.sender_key_id,
            "direction": self.direction,
            "deadlineAt": self.deadline_at_ms,
        }

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Read the JSON object form.

        Raises:
            ValueError: Not an object, a key missing or unknown, or a value of the wrong type or range.
        """
        if not isinstance(value, Mapping) or value.keys() != _JSON_KEYS:
            raise ValueError("an envelope has exactly the keys " + ", ".join(sorted(_JSON_KEYS)))
        match value:
            case {
                "ciphertext": str(ciphertext),
                "recipientKeyId": str(recipient),
                "senderKeyId": str(sender),
                "direction": ("payload" | "result") as direction,
                "deadlineAt": int(deadline_at_ms),
            } if recipient and sender and is_instant(deadline_at_ms):
                return cls(decode_base64url(ciphertext), recipient, sender, direction, deadline_at_ms)
            case _:
                raise ValueError("a value of the envelope has the wrong type or range")


def seal(
    *,
    keys: Keys,
    recipient: PublicIdentity,
    job_id: str,
    direction: Direction,
    plaintext: str,
    deadline_at_ms: int,
) -> Envelope:
    """Sign the plaintext in its context and seal it to the recipient.

    Args:
        keys: The sender's.
        recipient: To whom; its binding is checked before anything is sealed to it.
        job_id: The job that this belongs to, and the only one that it can be opened for.
        direction: Which leg of the exchange.
        plaintext: Text, sealed as it is. Its length shows: nothing is padded.
        deadline_at_ms: From this instant on the recipient refuses it, epoch milliseconds.

    Raises:
        SealError: The recipient's identity key has not signed its encryption key or the key is unusable,
            the text has a lone surrogate, the deadline is out of range, or the ciphertext is over 6 MiB.
    """
    context, inner = _prepare(keys, recipient, job_id, direction, plaintext, deadline_at_ms)
    return _with_header(context, _sealed_box(inner, recipient.encryption))


def seal_with_ephemeral(
    *,
    keys: Keys,
    recipient: PublicIdentity,
    job_id: str,
    direction: Direction,
    plaintext: str,
    deadline_at_ms: int,
    ephemeral_secret: bytes,
) -> Envelope:
    """Seal as `seal` does, with a given ephemeral key, so that the ciphertext can be foretold.

    The nonce follows from the two public keys: a second envelope to the same recipient under the same
    ephemeral key would give both away. This is for test vectors; everything else uses `seal`.

    Raises:
        SealError: As for `seal`.
    """
    context, inner = _prepare(keys, recipient, job_id, direction, plaintext, deadline_at_ms)
    return _with_header(context, _sealed_box(inner, recipient.encryption, ephemeral_secret))


def open_envelope(
    envelope: Envelope,
    *,
    keys: Keys,
    sender: PublicIdentity,
    job_id: str,
    direction: Direction,
    now_ms: int,
) -> str:
    """Open an envelope and return its plaintext, once everything about it has been checked.

    Args:
        envelope: As it was received.
        keys: The recipient's.
        sender: The pinned identity of the one party that may have sent it; no other key is tried.
        job_id: The job that it must belong to.
        direction: The leg that it must travel.
        now_ms: Now, epoch milliseconds. An envelope whose deadline is this instant has expired.

    Raises:
        EnvelopeRefused: With the first reason that applies, in the order of `Refusal`.
    """
    expected = BodyContext(job_id, sender.key_id, keys.key_id, envelope.deadline_at_ms, direction)
    # The order is part of the protocol. Nothing is decrypted for another party or after the deadline, and
    # the body is not parsed before its signature has been verified.
    _check_header(envelope, expected, now_ms)
    body = verified_body(_unseal(envelope.ciphertext, keys), sender)
    return _plaintext(body, expected)


def _prepare(
    keys: Keys,
    recipient: PublicIdentity,
    job_id: str,
    direction: Direction,
    plaintext: str,
    deadline_at_ms: int,
) -> tuple[BodyContext, bytes]:
    if not verify_binding(recipient):
        raise SealError("the recipient's identity key has not signed its encryption key")
    if not is_instant(deadline_at_ms):
        raise SealError("the deadline is not a positive instant in milliseconds")
    context = BodyContext(job_id, keys.key_id, recipient.key_id, deadline_at_ms, direction)
    inner = signed_inner(context, keys.signer, plaintext)
    if len(inner) + _OVERHEAD_BYTES > MAX_CIPHERTEXT_BYTES:
        raise SealError(f"the sealed text would be over {MAX_CIPHERTEXT_BYTES} bytes")
    return context, inner


def _sealed_box(message: bytes, public_key: bytes, ephemeral_secret: bytes | None = None) -> bytes:
    try:
        if ephemeral_secret is None:
            return crypto_box_seal(message, public_key)
        ephemeral_public = crypto_scalarmult_base(ephemeral_secret)
        nonce = hashlib.blake2b(ephemeral_public + public_key, digest_size=_NONCE_BYTES).digest()
        return ephemeral_public + crypto_box(message, nonce, public_key, ephemeral_secret)
    except CryptoError:
        # libsodium refuses a key of low order, with which everyone gets the same shared secret.
        raise SealError("the recipient's encryption key is unusable") from None


def _with_header(context: BodyContext, ciphertext: bytes) -> Envelope:
    return Envelope(
        ciphertext=ciphertext,
        recipient_key_id=context.recipient_key_id,
        sender_key_id=context.sender_key_id,
        direction=context.direction,
        deadline_at_ms=context.deadline_at_ms,
    )


def _check_header(envelope: Envelope, expected: BodyContext, now_ms: int) -> None:
    if (
        envelope.recipient_key_id != expected.recipient_key_id
        or envelope.sender_key_id != expected.sender_key_id
        or envelope.direction != expected.direction
    ):
        raise EnvelopeRefused(Refusal.NOT_FOR_US)
    if envelope.deadline_at_ms <= now_ms:
        raise EnvelopeRefused(Refusal.EXPIRED)


def _unseal(ciphertext: bytes, keys: Keys) -> bytes:
    try:
        return crypto_box_seal_open(ciphertext, keys.public.encryption, keys.encryption_secret)
    except CryptoError:
        raise EnvelopeRefused(Refusal.UNOPENABLE) from None


def _plaintext(body: bytes, expected: BodyContext) -> str:
    value = parse_object(body)
    if value is None or value.get("v") != DOMAIN:
        raise EnvelopeRefused(Refusal.MALFORMED)
    if not expected.matches(value):
        raise EnvelopeRefused(Refusal.CONTEXT_MISMATCH)
    match value.get("plaintext"):
        case str() as plaintext:
            return plaintext
        case _:
            raise EnvelopeRefused(Refusal.MALFORMED)
