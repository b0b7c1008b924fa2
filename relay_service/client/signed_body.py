"""The body that a sender signs: a plaintext bound to the one context in which it may be opened."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from relay_service.client.compact_json import dump_object, parse_object
from relay_service.client.refusals import EnvelopeRefused, Refusal, SealError
from relay_service.core.identity import PublicIdentity, decode_base64url, encode_base64url
from service_common.signing import Signer
from service_common.verification import verify_signature

Direction = Literal["payload", "result"]

DOMAIN = "byollm/v1/envelope"
MAX_INSTANT_MS = 9_007_199_254_740_991


@dataclass(frozen=True, slots=True)
class BodyContext:
    """What a signed body binds its plaintext to.

    The lease is not part of it: an envelope belongs to a job, two parties and a leg.
    """

    job_id: str
    sender_key_id: str
    recipient_key_id: str
    deadline_at_ms: int
    direction: Direction

    def encode(self, plaintext: str) -> bytes:
        """Return the bytes to sign; the order of the keys is part of the protocol.

        Raises:
            SealError: A text has a lone surrogate.
        """
        fields = {
            "v": DOMAIN,
            "jobId": self.job_id,
            "senderKeyId": self.sender_key_id,
            "recipientKeyId": self.recipient_key_id,
            "deadlineAt": self.deadline_at_ms,
            "direction": self.direction,
            "plaintext": plaintext,
        }
        try:
            return dump_object(fields)
        except ValueError as error:
            raise SealError(str(error)) from None

    def matches(self, body: Mapping[str, object]) -> bool:
        """Tell whether a received body says the same of itself."""
        return (
            body.get("jobId") == self.job_id
            and body.get("senderKeyId") == self.sender_key_id
            and body.get("recipientKeyId") == self.recipient_key_id
            and body.get("direction") == self.direction
            and body.get("deadlineAt") == self.deadline_at_ms
        )


def signed_inner(context: BodyContext, signer: Signer, plaintext: str) -> bytes:
    """Return what goes into the sealed box: the body and the sender's signature over it.

    Raises:
        SealError: A text has a lone surrogate.
    """
    body = context.encode(plaintext)
    return dump_object(
        {"body": encode_base64url(body), "signature": encode_base64url(signer.sign(body))},
    )


def verified_body(inner: bytes, sender: PublicIdentity) -> bytes:
    """Return the body out of what a sealed box held, once the sender's signature over it is verified.

    Raises:
        EnvelopeRefused: `MALFORMED` or `BAD_SIGNATURE`.
    """
    match parse_object(inner):
        case {"body": str(body_text), "signature": str(signature_text), **rest} if not rest:
            pass
        case _:
            raise EnvelopeRefused(Refusal.MALFORMED)
    try:
        body, signature = decode_base64url(body_text), decode_base64url(signature_text)
    except ValueError:
        raise EnvelopeRefused(Refusal.MALFORMED) from None
    if not verify_signature(sender.identity, body, signature):
        raise EnvelopeRefused(Refusal.BAD_SIGNATURE)
    return body


def is_instant(value: int) -> bool:
    """Tell whether the number is an instant that every language can hold: 1 to 2**53 - 1 milliseconds."""
    return not isinstance(value, bool) and 0 < value <= MAX_INSTANT_MS
