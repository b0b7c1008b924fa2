"""What a caller signs, and the check of a signature.

This is the server's half: it holds no private-key code, and imports none. `service_common.signing` is the
client's half and signs exactly the bytes that are laid out here.
"""

import base64

from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

PUBLIC_KEY_BYTES = 32
SIGNATURE_BYTES = 64

# The first line separates the domains: a signature for one purpose can never verify for another.
_REQUEST_DOMAIN = "sealwork/v1/request"
_SESSION_DOMAIN = "sealwork/v1/session"


def request_bytes(method: str, caller: str, issued_at_ms: int, nonce: str, body_sha256_hex: str) -> bytes:
    """Return the bytes that sign one unary request.

    Args:
        method: Full method name with its leading slash.
        caller: Id of the caller. An id has no control characters, so it cannot forge a line.
        issued_at_ms: When the caller signed, epoch milliseconds.
        nonce: Unpadded base64url text, as it travels in the metadata.
        body_sha256_hex: Lower-case hex SHA-256 of the serialized request message as received.
    """
    return _lines(_REQUEST_DOMAIN, method, caller, str(issued_at_ms), nonce, body_sha256_hex)


def session_bytes(method: str, caller: str, nonce: bytes, hello_sha256_hex: str) -> bytes:
    """Return the bytes that sign the hello of one session.

    Args:
        method: Full method name with its leading slash.
        caller: Id of the caller. An id has no control characters, so it cannot forge a line.
        nonce: The raw nonce of the server's challenge.
        hello_sha256_hex: Lower-case hex SHA-256 of the hello bytes as received.
    """
    nonce_text = base64.urlsafe_b64encode(nonce).rstrip(b"=").decode("ascii")
    return _lines(_SESSION_DOMAIN, method, caller, nonce_text, hello_sha256_hex)


def verify_signature(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Tell whether the Ed25519 signature is the key's over the message; wrong lengths answer False."""
    # libsodium reads a fixed number of bytes through the key pointer and the binding checks no length.
    if len(public_key) != PUBLIC_KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        crypto_sign_open(signature + message, public_key)
    except BadSignatureError:
        return False
    return True


def _lines(*lines: str) -> bytes:
    return "\n".join(lines).encode("utf-8")
