"""Signing of requests and sessions: the client's half of `service_common.verification`.

This module handles a private key. A server never imports it.
"""

import base64
import hashlib
import os
from collections.abc import Callable
from typing import Final

from nacl.bindings import crypto_sign, crypto_sign_seed_keypair

from service_common.verification import SIGNATURE_BYTES, request_bytes, session_bytes

SIGNING_PROTOCOL: Final = "1"
SEED_BYTES: Final = 32
NONCE_BYTES: Final = 16


class Signer:
    """An Ed25519 identity that can sign. Its text form shows the public key alone."""

    __slots__ = ("_secret", "public_key")

    public_key: Final[bytes]

    def __init__(self, seed: bytes) -> None:
        """Derive the key pair.

        Args:
            seed: The 32-byte Ed25519 seed.

        Raises:
            ValueError: The seed has another length.
        """
        if len(seed) != SEED_BYTES:
            raise ValueError(f"an Ed25519 seed has {SEED_BYTES} bytes")
        self.public_key, self._secret = crypto_sign_seed_keypair(seed)

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature over the message."""
        return crypto_sign(message, self._secret)[:SIGNATURE_BYTES]

    def __repr__(self) -> str:
        return f"Signer(public_key={_base64url(self.public_key)})"


class NoSigner(Signer):
    """Stands for the identity of a caller whose client certificate takes the place of signatures."""

    __slots__ = ()

    def __init__(self) -> None:
        self.public_key = b""  # type: ignore[misc]

    def sign(self, message: bytes) -> bytes:
        del message
        return b""

    def __repr__(self) -> str:
        return "NoSigner()"


def sign_request(
    signer: Signer, method: str, caller: str, issued_at_ms: int, nonce_text: str, body: bytes
) -> str:
    """Return the signature of one unary request as unpadded base64url text.

    Args:
        signer: The caller's identity.
        method: Full method name with its leading slash.
        caller: Id of the caller.
        issued_at_ms: Now, epoch milliseconds.
        nonce_text: Unpadded base64url text of random bytes, never used before.
        body: The serialized request message, exactly as it will be sent.

    Raises:
        ValueError: A line break in the method, the caller or the nonce, which could forge a line.
    """
    _refuse_line_breaks(method, caller, nonce_text)
    digest = hashlib.sha256(body).hexdigest()
    return _base64url(signer.sign(request_bytes(method, caller, issued_at_ms, nonce_text, digest)))


def sign_session(signer: Signer, method: str, caller: str, nonce: bytes, hello: bytes) -> bytes:
    """Return the 64-byte signature of one session's hello, bound to the server's challenge.

    Args:
        signer: The caller's identity.
        method: Full method name with its leading slash.
        caller: Id of the caller.
        nonce: The raw nonce of the server's challenge.
        hello: The serialized hello, exactly as it will be sent.

    Raises:
        ValueError: A line break in the method or the caller, which could forge a line.
    """
    _refuse_line_breaks(method, caller)
    return signer.sign(session_bytes(method, caller, nonce, hashlib.sha256(hello).hexdigest()))


def request_metadata(
    signer: Signer,
    caller: str,
    method: str,
    body: bytes,
    now_ms: int,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> tuple[tuple[str, str], ...]:
    """Return the five metadata entries that authenticate one unary request.

    Every call draws a fresh nonce: a server accepts a nonce once, so a retry is signed again.

    Args:
        signer: The caller's identity.
        caller: Id of the caller; printable ASCII, because metadata carries nothing else.
        method: Full method name with its leading slash.
        body: The serialized request message, exactly as it will be sent.
        now_ms: Now, epoch milliseconds.
        random_bytes: Source of that many unpredictable bytes.

    Raises:
        ValueError: The caller cannot travel as metadata.
    """
    if not (caller.isascii() and caller.isprintable() and caller == caller.strip() and caller):
        raise ValueError("a caller that signs requests is named in printable ASCII")
    nonce = _base64url(random_bytes(NONCE_BYTES))
    return (
        ("sealwork-protocol", SIGNING_PROTOCOL),
        ("sealwork-caller", caller),
        ("sealwork-issued-at", str(now_ms)),
        ("sealwork-nonce", nonce),
        ("sealwork-signature", sign_request(signer, method, caller, now_ms, nonce, body)),
    )


def _refuse_line_breaks(*fields: str) -> None:
    if any("\n" in field for field in fields):
        raise ValueError("a signed field holds no line break")


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
