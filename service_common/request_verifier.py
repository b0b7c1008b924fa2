"""Who sent this unary request: signature, freshness and single use."""

import hashlib
from typing import Any, Final, Protocol

import grpc

from service_common import verification
from service_common.clocks import Clock
from service_common.errors import ServiceError
from service_common.request_headers import Metadata, SignedHeaders, signed_headers

MAX_SKEW_MS: Final = 120_000
# Replicas that share a ledger have clocks of their own, and a clock may be set back: a nonce is remembered
# longer than its request is fresh.
_NONCE_MARGIN_MS: Final = 10_000
# A point on the curve whose private key is published (RFC 8032, test 1). What it verifies counts for nothing:
# it only makes an unknown caller cost as much time as a known one.
_NOBODY: Final = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")


class KeyDirectory(Protocol):
    """Who may call, by the authority as it stands now."""

    def keys_for(self, method: str, caller: str) -> tuple[bytes, ...] | None:
        """Return the caller's Ed25519 public keys on this method's plane, or None for an unknown caller."""

    def refusal_for(self, method: str, caller: str) -> ServiceError | None:
        """Return why this caller is turned away, once it has proved who it is; None lets it in."""


class NonceLedger(Protocol):
    """Which nonces were used."""

    async def use_nonce(self, caller: str, nonce: str, ttl_ms: int) -> bool:
        """Record the nonce for that many milliseconds; False when the caller used it already."""


class RequestVerifier:
    """Checks signed unary requests.

    The order of the checks is part of the protocol. Nothing is told about a caller before the signature has
    proved it: unknown and badly signed are one answer, in one time, and a stale request is refused as stale
    whoever sent it. A nonce is used up only by a request whose signature held, or anyone could burn it.
    """

    def __init__(self, keys: KeyDirectory, nonces: NonceLedger, clock: Clock) -> None:
        self._keys = keys
        self._nonces = nonces
        self._clock = clock

    async def authenticate(
        self, method: str, context: "grpc.aio.ServicerContext[Any, Any]", request: bytes
    ) -> str:
        """Verify a call being served; see `verify`."""
        return await self.verify(method, context.invocation_metadata() or (), request)

    async def verify(self, method: str, metadata: Metadata, request: bytes) -> str:
        """Return the caller's id.

        Args:
            method: Full method name with its leading slash.
            metadata: The invocation metadata.
            request: The serialized request message, exactly as it was received.

        Raises:
            ServiceError: UNSUPPORTED_PROTOCOL_VERSION, UNSIGNED_REQUEST, CLOCK_SKEW, BAD_SIGNATURE, the
                directory's own refusal, or REPLAYED.
        """
        headers = signed_headers(metadata)
        now_ms = self._clock.now_ms()
        _refuse_stale(headers.issued_at_ms, now_ms)
        if not self._is_signed(method, headers, request):
            raise _bad_signature()
        refusal = self._keys.refusal_for(method, headers.caller)
        if refusal is not None:
            raise refusal
        # Inclusive: at the last millisecond of its window the request is still fresh.
        ttl_ms = headers.issued_at_ms + MAX_SKEW_MS - now_ms + 1 + _NONCE_MARGIN_MS
        if not await self._nonces.use_nonce(headers.caller, headers.nonce, ttl_ms):
            raise _replayed()
        return headers.caller

    def _is_signed(self, method: str, headers: SignedHeaders, request: bytes) -> bool:
        digest = hashlib.sha256(request).hexdigest()
        message = verification.request_bytes(
            method, headers.caller, headers.issued_at_ms, headers.nonce, digest
        )
        keys = self._keys.keys_for(method, headers.caller)
        if not keys:
            verification.verify_signature(_NOBODY, message, headers.signature)
            return False
        return any(verification.verify_signature(key, message, headers.signature) for key in keys)


def _refuse_stale(issued_at_ms: int, now_ms: int) -> None:
    if abs(now_ms - issued_at_ms) > MAX_SKEW_MS:
        raise ServiceError(
            grpc.StatusCode.UNAUTHENTICATED,
            "CLOCK_SKEW",
            "the request was signed too long ago or in the future: set the clock, then sign anew",
            metadata={"server_time_ms": str(now_ms), "max_skew_ms": str(MAX_SKEW_MS)},
        )


def _bad_signature() -> ServiceError:
    return ServiceError(
        grpc.StatusCode.UNAUTHENTICATED,
        "BAD_SIGNATURE",
        "the signature is not one of a caller known here over this method and this request",
    )


def _replayed() -> ServiceError:
    return ServiceError(
        grpc.StatusCode.UNAUTHENTICATED,
        "REPLAYED",
        "this nonce was used before: sign every attempt anew, with a fresh nonce",
    )
