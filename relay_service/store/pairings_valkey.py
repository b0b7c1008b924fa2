"""Pairings on a Valkey server, shared by the relays on it."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from relay_service.core.identity import encode_base64url
from relay_service.core.pairing import (
    OUTSTANDING_PAIRINGS,
    Decision,
    Pairing,
    PairingIntroduction,
    PairingRefusal,
    PairingState,
    Platform,
)
from relay_service.store.pairings import FoundPairing
from relay_service.store.valkey_changes import Listeners
from relay_service.store.valkey_records import UnreadableError, device_from, device_text, read
from relay_service.store.valkey_sites import Functions

_logger = logging.getLogger(__name__)


class ValkeyPairings:
    """`PairingStore` on the server, in a slot of its own."""

    def __init__(self, functions: Functions, listeners: Listeners, clock_setting: Callable[[], str]) -> None:
        self._functions = functions
        self._listeners = listeners
        self._clock_setting = clock_setting
        self._base = f"{functions.prefix}{{pairings}}:"

    async def begin(
        self, pairing_id: str, user_code: str, introduction: PairingIntroduction
    ) -> Pairing | PairingRefusal:
        identity = encode_base64url(introduction.identity.identity)
        about = _introduction_text(introduction)
        outcome, expires = await self._ask("begin_pairing", pairing_id, user_code, identity, about)
        if outcome != b"begun":
            return PairingRefusal(outcome.decode())
        return Pairing(pairing_id, user_code, introduction, int(expires))

    async def find(self, pairing_id: str) -> FoundPairing | None:
        return _found(await self._ask("find_pairing", pairing_id or "-", ""))

    async def find_by_user_code(self, user_code: str) -> FoundPairing | None:
        return _found(await self._ask("find_pairing", "", user_code))

    async def decide(self, pairing_id: str, decision: Decision) -> Pairing | PairingRefusal:
        word = (decision.state.value, decision.owner, decision.runner_id)
        answer = await self._ask("decide_pairing", self._listeners.origin, pairing_id, *word)
        if not answer:
            return PairingRefusal.NOT_FOUND
        published, facts = answer
        if published is not None:
            self._listeners.tell(published)
        found = _found(facts)
        return PairingRefusal.NOT_FOUND if found is None else found.pairing

    async def pending(self) -> Sequence[Pairing]:
        found = map(_found, await self._ask("pending_pairings", OUTSTANDING_PAIRINGS))
        return [each.pairing for each in found if each is not None]

    async def _ask(self, name: str, *arguments: str | bytes | int) -> Any:
        return await self._functions.call(name, (self._base,), self._clock_setting(), *arguments)


def _introduction_text(introduction: PairingIntroduction) -> bytes:
    return orjson.dumps(
        {
            "device": device_text(introduction.identity),
            "label": introduction.label,
            "platform": introduction.platform.value,
            "version": introduction.client_version,
        }
    )


def _found(facts: Sequence[Any]) -> FoundPairing | None:
    """The pairing of an answer; one that cannot be read is none, for it dies by itself."""
    if not facts:
        return None
    try:
        pairing = _pairing(facts)
    except (UnreadableError, LookupError, ValueError, TypeError, AttributeError):
        _logger.warning("a stored pairing could not be read")
        return None
    return FoundPairing(pairing, pairing.expires_at_ms - int(facts[1]))


def _pairing(facts: Sequence[Any]) -> Pairing:
    pairing_id, _, user_code, about, expires, state, owner, runner = facts
    record = read(about)
    introduction = PairingIntroduction(
        device_from(record["device"]), record["label"], Platform(record["platform"]), record["version"]
    )
    decision = None
    if state is not None:
        decision = Decision(PairingState(state.decode()), owner.decode(), runner.decode())
    return Pairing(pairing_id.decode(), user_code.decode(), introduction, int(expires), decision)
