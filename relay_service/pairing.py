"""The desk where new devices introduce themselves and a person approves them.

The projection is the authority: a device is paired when its key is in the projection, however it came there.
The store's record of a pairing carries the codes and a person's word from relay to relay.
"""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final

import structlog

from relay_service.core.identity import PublicIdentity
from relay_service.core.model import Change, PairingDecided
from relay_service.core.pairing import (
    DENIAL,
    OUTSTANDING_PAIRINGS,
    Decision,
    Pairing,
    PairingIntroduction,
    PairingRefusal,
    PairingState,
    code_statement,
    draw_codes,
    pairing_id,
    read_user_code,
)
from relay_service.core.projection import ProjectedDevice, Projection
from relay_service.paired_devices import PairedDevices
from relay_service.pairing_admission import PairingAdmission
from relay_service.pairing_facts import (
    EXPIRED,
    PairingApproval,
    PairingOutcome,
    PairingSettings,
    PendingPairing,
    StartedPairing,
    StartProof,
    pending_pairing,
)
from relay_service.pairing_watchers import PairingWatchers, TooManyWatchers
from relay_service.planes import refusals
from relay_service.projection import ProjectionSource
from relay_service.store.base import RoutingStore
from relay_service.store.pairings import FoundPairing
from service_common.clocks import Clock
from service_common.drain import draining_error
from service_common.metrics import Metrics
from service_common.verification import verify_signature

__all__ = ["PairingDesk", "PairingOutcome", "PairingSettings", "PendingPairing", "Register", "StartProof"]

_log: Final = structlog.get_logger(__name__)

Register = Callable[[str, PublicIdentity, str, str], Awaitable[str]]
"""Adds a device to the projection: owner, identity, label, actor; the runner id.

It answers the same runner id for the same key and owner, however often it is called.
"""

_SIGN_OF_LIFE_SECONDS: Final = 15.0
_FULL_RETRY_MS: Final = 30_000
# Of a million million user codes 500 are taken: one draw suffices nearly always.
_DRAWS: Final = 8


class PairingDesk:
    """Pairs devices at one relay; relays on one store share what waits.

    Attributes:
        register: adds an approved device to the projection; without it nothing can be approved here.
    """

    def __init__(
        self,
        store: RoutingStore,
        source: ProjectionSource,
        settings: PairingSettings,
        clock: Clock,
        *,
        register: Register | None = None,
        metrics: Metrics | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.register = register
        self._store = store
        self._source = source
        self._settings = settings
        self._clock = clock
        self._random_bytes = random_bytes
        self._admission = PairingAdmission(store, clock, settings.starts_per_minute)
        self._watchers = PairingWatchers(clock)
        self._leaving = False
        self._devices = PairedDevices()
        self._events = (metrics or Metrics()).counter(
            "relay_pairings", "Pairings by what happened: started, full, approved, denied", ["event"]
        )
        self._endings = [store.listen(self._note), source.listen(self._apply)]

    def close(self) -> None:
        """Hears of no change any more."""
        for ending in self._endings:
            ending()
        self._endings = []

    # -- devices ------------------------------------------------------------------------

    async def start(self, introduction: PairingIntroduction, proof: StartProof, peer: str) -> StartedPairing:
        """Begins a pairing, in the place of an earlier one by the same key.

        Args:
            peer: address that the call came from, without its port.

        Raises:
            ServiceError: PAIRING_NOT_OFFERED, PAIRINGS_AT_CAPACITY, CLOCK_SKEW, IDENTITY_INCONSISTENT,
                BAD_SIGNATURE, REPLAYED, DEVICE_REVOKED.
        """
        self._require_offered()
        self._admission.limit(peer)
        await self._admission.prove(introduction.identity, proof)
        known = self._devices.of(self._source.current, introduction.identity.identity)
        if known is not None and known.revoked:
            # Nobody could approve it. Said after the proof: it is for the holder of the key alone.
            raise refusals.device_revoked()
        for _ in range(_DRAWS):
            codes = draw_codes(self._random_bytes)
            name = pairing_id(codes.device_code)
            begun = await self._store.pairings.begin(name, codes.user_code, introduction)
            if isinstance(begun, Pairing):
                return await self._started(codes.device_code, begun)
            if begun is PairingRefusal.AT_CAPACITY:
                break
        self._events.labels("full").inc()
        raise refusals.too_many_pairings(OUTSTANDING_PAIRINGS, _FULL_RETRY_MS)

    async def poll(self, device_code: str, signature: bytes) -> PairingOutcome:
        """How a pairing stands; it can be read, approval included, until the code expires.

        Args:
            signature: by the device over `code_statement`.

        Raises:
            ServiceError: PAIRING_NOT_OFFERED, or BAD_SIGNATURE for whoever has the code and not the key.
        """
        self._require_offered()
        return self._outcome(await self._proven(device_code, signature))

    async def watch(self, device_code: str, signature: bytes) -> AsyncGenerator[PairingOutcome, None]:
        """How a pairing stands: at once, every 15 s, and last when it is decided or expired.

        Raises:
            ServiceError: as `poll`, and TOO_MANY_SESSIONS, SERVER_DRAINING.
        """
        self._require_offered()
        found = await self._proven(device_code, signature)
        if found is None:
            yield EXPIRED
            return
        async with aclosing(self._follow(found.pairing)) as outcomes:
            async for outcome in outcomes:
                yield outcome

    # -- people -------------------------------------------------------------------------

    async def pending(self) -> Sequence[PendingPairing]:
        """Devices that wait for a decision, oldest first; at most 500.

        Raises:
            ServiceError: PAIRING_NOT_OFFERED.
        """
        self._require_offered()
        waiting = await self._store.pairings.pending()
        return [pending_pairing(pairing) for pairing in waiting if not self._is_in_force(pairing)]

    async def approve(self, user_code: str, owner: str, actor: str) -> str:
        """Makes the device that shows this code a device of `owner`; its runner id.

        The device is in the projection before the pairing says approved. If the relay dies in between,
        approving again completes it under the same runner id.

        Raises:
            ServiceError: PAIRING_NOT_OFFERED, PAIRING_NOT_FOUND, PAIRING_DECIDED, or what keeps the
                projection from being changed.
        """
        self._require_offered()
        if self.register is None:
            raise refusals.pairing_not_offered()
        pairing = await self._by_user_code(user_code)
        self._refuse_decided_otherwise(pairing, owner)
        about = pairing.introduction
        runner_id = await self.register(owner, about.identity, about.label, actor)
        # Expired or denied in the meantime makes no difference: the projection has the device.
        await self._store.pairings.decide(
            pairing.pairing_id, Decision(PairingState.APPROVED, owner, runner_id)
        )
        self._events.labels("approved").inc()
        _log.info("pairing_approved", owner=owner, runner_id=runner_id)
        return runner_id

    async def deny(self, user_code: str, actor: str) -> None:
        """Turns the device away that shows this code.

        Raises:
            ServiceError: PAIRING_NOT_OFFERED, PAIRING_NOT_FOUND, PAIRING_DECIDED.
        """
        self._require_offered()
        pairing = await self._by_user_code(user_code)
        if self._is_in_force(pairing):
            raise refusals.pairing_decided()
        decided = await self._store.pairings.decide(pairing.pairing_id, DENIAL)
        if not isinstance(decided, Pairing):
            raise refusals.pairing_not_found()
        if decided.state is not PairingState.DENIED:
            raise refusals.pairing_decided()
        self._events.labels("denied").inc()
        _log.info("pairing_denied", caller=actor)

    # -- the relay ----------------------------------------------------------------------

    def recheck(self) -> None:
        """News may have been missed: everybody who waits looks again."""
        for watcher in self._watchers:
            watcher.wake()

    async def leave(self) -> None:
        """Ends the calls that wait, for the relay shuts down; they are asked again elsewhere."""
        self._leaving = True
        self.recheck()

    def _note(self, change: Change) -> None:
        if isinstance(change, PairingDecided):
            for watcher in self._watchers.of(change.pairing_id):
                watcher.wake()

    def _apply(self, _old: Projection, new: Projection) -> None:
        if len(self._watchers):
            for watcher in self._watchers:
                if self._devices.of(new, watcher.identity) is not None:
                    watcher.wake()

    # -- steps --------------------------------------------------------------------------

    def _require_offered(self) -> None:
        if not self._settings.offered:
            raise refusals.pairing_not_offered()

    async def _started(self, device_code: str, pairing: Pairing) -> StartedPairing:
        life_ms = pairing.expires_at_ms - await self._store.now()
        self._events.labels("started").inc()
        url = self._settings.verification_url
        return StartedPairing(device_code, pairing.user_code, url, pairing.expires_at_ms, life_ms)

    async def _proven(self, device_code: str, signature: bytes) -> FoundPairing | None:
        found = await self._store.pairings.find(pairing_id(device_code))
        if found is None:
            return None
        identity = found.pairing.introduction.identity.identity
        if not verify_signature(identity, code_statement(device_code), signature):
            raise refusals.pairing_not_proven()
        return found

    async def _follow(self, pairing: Pairing) -> AsyncGenerator[PairingOutcome, None]:
        identity = pairing.introduction.identity.identity
        try:
            with self._watchers.watching(pairing.pairing_id, identity) as watcher:
                while True:
                    if self._leaving:
                        raise draining_error()
                    # Read after it is registered, so that no news falls between the two.
                    outcome = self._outcome(await self._store.pairings.find(pairing.pairing_id))
                    yield outcome
                    if outcome.state is not PairingState.PENDING:
                        return
                    await watcher.news(min(_SIGN_OF_LIFE_SECONDS, outcome.remaining_ms / 1000))
        except TooManyWatchers:
            raise refusals.too_many_pairing_streams() from None

    def _outcome(self, found: FoundPairing | None) -> PairingOutcome:
        if found is None:
            return EXPIRED
        pairing = found.pairing
        device = self._device(pairing)
        if device is not None and not device.revoked:
            approval = PairingApproval(device.runner_id, device.owner, self._settings.control_plane_key)
            return PairingOutcome(PairingState.APPROVED, approval)
        if pairing.state is PairingState.APPROVED and device is None:
            # Approved at another relay: its projection is on the way.
            return PairingOutcome(PairingState.PENDING, remaining_ms=found.remaining_ms)
        if pairing.state is PairingState.PENDING:
            return PairingOutcome(PairingState.PENDING, remaining_ms=found.remaining_ms)
        return PairingOutcome(PairingState.DENIED)

    async def _by_user_code(self, user_code: str) -> Pairing:
        found = await self._store.pairings.find_by_user_code(read_user_code(user_code))
        if found is None:
            raise refusals.pairing_not_found()
        return found.pairing

    def _refuse_decided_otherwise(self, pairing: Pairing, owner: str) -> None:
        device = self._device(pairing)
        in_force = device is not None and not device.revoked
        if in_force and device is not None and device.owner != owner:
            raise refusals.pairing_decided()
        if pairing.decision is None:
            return
        # A repeat must not bring back a device that was cut off after the first approval.
        repeats = pairing.decision.owner == owner and (device is None or in_force)
        if pairing.state is not PairingState.APPROVED or not repeats:
            raise refusals.pairing_decided()

    def _device(self, pairing: Pairing) -> ProjectedDevice | None:
        return self._devices.of(self._source.current, pairing.introduction.identity.identity)

    def _is_in_force(self, pairing: Pairing) -> bool:
        device = self._device(pairing)
        return device is not None and not device.revoked
