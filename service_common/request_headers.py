"""The metadata of a signed unary request: reading it strictly, before anything is believed."""

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import grpc

from service_common.errors import ServiceError

PROTOCOL_VERSION: Final = "1"

PROTOCOL_KEY: Final = "sealwork-protocol"
CALLER_KEY: Final = "sealwork-caller"
ISSUED_AT_KEY: Final = "sealwork-issued-at"
NONCE_KEY: Final = "sealwork-nonce"
SIGNATURE_KEY: Final = "sealwork-signature"

# Each value in its one canonical spelling and of bounded length. 16 bytes are 22 characters of base64url of
# which the last carries two bits, 64 bytes are 86 characters with again two bits in the last.
_FORMS: Final = {
    CALLER_KEY: re.compile(r"[!-~](?:[ -~]{0,126}[!-~])?"),
    ISSUED_AT_KEY: re.compile(r"0|[1-9][0-9]{0,15}"),
    NONCE_KEY: re.compile(r"[A-Za-z0-9_-]{21}[AQgw]"),
    SIGNATURE_KEY: re.compile(r"[A-Za-z0-9_-]{85}[AQgw]"),
}
_KEYS: Final = frozenset((PROTOCOL_KEY, *_FORMS))

Metadata = Iterable[tuple[str, str | bytes]]


@dataclass(frozen=True, slots=True)
class SignedHeaders:
    """What the caller claims and the proof of it.

    Attributes:
        caller: Id of the caller, printable ASCII of 1 to 128 characters.
        issued_at_ms: When the caller signed by its own clock, epoch milliseconds.
        nonce: Unpadded base64url text of 16 bytes.
        signature: 64 bytes.
    """

    caller: str
    issued_at_ms: int
    nonce: str
    signature: bytes


def require_protocol(metadata: Metadata) -> None:
    """Refuse a caller that speaks no version of the protocol that this server speaks.

    Raises:
        ServiceError: FAILED_PRECONDITION/UNSUPPORTED_PROTOCOL_VERSION.
    """
    _refuse_protocol_unless_supported(_own_entries(metadata))


def signed_headers(metadata: Metadata) -> SignedHeaders:
    """Read the headers of a signed request.

    Raises:
        ServiceError: FAILED_PRECONDITION/UNSUPPORTED_PROTOCOL_VERSION, which is judged first because another
            version may sign in another way; UNAUTHENTICATED/UNSIGNED_REQUEST when a header is missing, given
            twice or malformed.
    """
    entries = _own_entries(metadata)
    _refuse_protocol_unless_supported(entries)
    for key, form in _FORMS.items():
        if form.fullmatch(_text(entries, key)) is None:
            raise ServiceError(
                grpc.StatusCode.UNAUTHENTICATED,
                "UNSIGNED_REQUEST",
                f"this method takes signed requests only, and the metadata {key} is missing or malformed",
                metadata={"header": key},
            )
    return SignedHeaders(
        caller=_text(entries, CALLER_KEY),
        issued_at_ms=int(_text(entries, ISSUED_AT_KEY)),
        nonce=_text(entries, NONCE_KEY),
        signature=base64.urlsafe_b64decode(_text(entries, SIGNATURE_KEY) + "=="),
    )


def _own_entries(metadata: Metadata) -> dict[str, str | bytes | None]:
    entries: dict[str, str | bytes | None] = {}
    for key, value in metadata:
        if key in _KEYS:
            # Which of two values a proxy would pick is anyone's guess, so a repeated one is none.
            entries[key] = None if key in entries else value
    return entries


def _text(entries: dict[str, str | bytes | None], key: str) -> str:
    value = entries.get(key)
    return value if isinstance(value, str) else ""


def _refuse_protocol_unless_supported(entries: dict[str, str | bytes | None]) -> None:
    version = _text(entries, PROTOCOL_KEY)
    if version == PROTOCOL_VERSION:
        return
    if version:
        found = "this client speaks another version of the protocol"
        remedy = "upgrade whichever of client and server is older"
    else:
        found = f"the metadata {PROTOCOL_KEY} is missing"
        remedy = "upgrade the client, or let it send that metadata with every call"
    raise ServiceError(
        grpc.StatusCode.FAILED_PRECONDITION,
        "UNSUPPORTED_PROTOCOL_VERSION",
        f"{found}; this server supports version {PROTOCOL_VERSION}: {remedy}",
        metadata={"supported": PROTOCOL_VERSION},
    )
