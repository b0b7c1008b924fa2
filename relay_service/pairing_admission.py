"""Who may start a pairing: not too often from one address, and the holder of the key alone."""

from typing import Final

from relay_service.core.identity import PublicIdentity, verify_binding
from relay_service.core.limits import CLOCK_SKEW_MS
from relay_service.core.pairing import start_statement
from relay_service.pairing_facts import StartProof
from relay_service.pairing_rates import PairingRates
from relay_service.planes import refusals
from relay_service.store.base import RoutingStore
from service_common.clocks import Clock
from service_common.verification import verify_signature

# As for signed requests: a nonce is remembered a little longer than its proof is fresh.
_NONCE_MARGIN_MS: Final = 10_000


class PairingAdmission:
    """Checks a start, the cheapest check first: a flood must not cost a signature each."""

    def __init__(self, store: RoutingStore, clock: Clock, starts_per_minute: int) -> None:
        self._store = store
        self._clock = clock
        self._starts_per_minute = starts_per_minute
        self._rates = PairingRates(clock.monotonic, starts_per_minute)

    def limit(self, peer: str) -> None:
        """Takes one of the starts that this address has.

        Raises:
            ServiceError: PAIRINGS_AT_CAPACITY.
        """
        retry_after_ms = self._rates.take(peer)
        if retry_after_ms:
            raise refusals.too_many_pairings_of_an_address(self._starts_per_minute, retry_after_ms)

    async def prove(self, identity: PublicIdentity, proof: StartProof) -> None:
        """Lets in whoever holds the key now.

        Raises:
            ServiceError: CLOCK_SKEW, IDENTITY_INCONSISTENT, BAD_SIGNATURE, REPLAYED.
        """
        now_ms = self._clock.now_ms()
        if abs(now_ms - proof.issued_at_ms) > CLOCK_SKEW_MS:
            raise refusals.pairing_clock_skew(now_ms, CLOCK_SKEW_MS)
        if not verify_binding(identity):
            raise refusals.identity_inconsistent()
        statement = start_statement(identity.identity, proof.issued_at_ms, proof.nonce)
        if not verify_signature(identity.identity, statement, proof.signature):
            raise refusals.pairing_not_proven()
        ttl_ms = proof.issued_at_ms + CLOCK_SKEW_MS - now_ms + 1 + _NONCE_MARGIN_MS
        if not await self._store.use_nonce(f"pairing {identity.key_id}", proof.nonce.hex(), ttl_ms):
            raise refusals.pairing_replayed()
