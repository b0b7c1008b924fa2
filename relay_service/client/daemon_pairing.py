"""Pairing, the device's half: ask for a code, wait for a person, and check what the relay then says."""

import os
import sys
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from relay_service.client.connection import Connection
from relay_service.client.daemon_pairing_calls import PairingCalls, may_pass
from relay_service.client.errors import RelayError
from relay_service.client.keys import Keys
from relay_service.client.wire import identity_from_proto
from relay_service.core.identity import PUBLIC_KEY_BYTES, PublicIdentity, verify_binding
from relay_service.core.limits import IDENTIFIER_CHARACTERS
from sealwork.relay.v1 import pairing_pb2
from service_common.clocks import Clock, SystemClock

__all__ = ["PairedDevice", "PairingCode", "PairingEnded", "PairingError", "PairingEvents", "pair_device"]

# Polls between two attempts to watch, where streams do not work.
_POLLS: Final = 5
_START_ATTEMPTS: Final = 4
_LONGEST_START_WAIT_SECONDS: Final = 90.0
_RESTARTS: Final = 3
# An end this close to the code's own is that end, and not a relay that has forgotten.
_MARGIN_SECONDS: Final = 5.0
_PLATFORMS: Final = {"darwin": pairing_pb2.PLATFORM_DARWIN, "win32": pairing_pb2.PLATFORM_WIN32}


class PairingError(Exception):
    """The pairing was given up. The text says why, and what to do."""


class PairingEnded(PairingError):  # noqa: N818 - it names how the pairing went
    """A person said no, or nobody said anything in time.

    Attributes:
        denied: whether somebody said no.
    """

    def __init__(self, *, denied: bool) -> None:
        """Tell how it ended."""
        super().__init__(
            "the pairing was denied by whoever runs the relay; ask them why before you try again"
            if denied
            else "the code has expired before anybody approved it; pair again, and have it approved in time"
        )
        self.denied = denied


@dataclass(frozen=True, slots=True)
class PairingCode:
    """What to show to the person.

    Attributes:
        user_code: The code, as XXXX-XXXX.
        verification_url: Where to approve; empty when the relay's operator does it by a command.
        deadline: When the code dies, on the clock's monotonic time, in seconds.
    """

    user_code: str
    verification_url: str
    deadline: float
    device_code: str = field(repr=False)
    poll_seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class PairedDevice:
    """What an approval has brought, checked.

    Attributes:
        runner_id: The device's name from now on.
        owner: Whose device it is.
        pins: The sites to serve, by key id.
        control_plane_key: Raw Ed25519 key that signs grants; None when the operator has none.
    """

    runner_id: str
    owner: str
    pins: Mapping[str, PublicIdentity]
    control_plane_key: bytes | None


@dataclass(frozen=True, slots=True)
class PairingEvents:
    """Who is told while a pairing waits.

    Attributes:
        code: There is a code to show; a second one when the relay has lost the first.
        trouble: The relay cannot be reached, in a line; it is tried again.
    """

    code: Callable[[PairingCode], object]
    trouble: Callable[[str], object]


async def pair_device(
    connection: Connection,
    keys: Keys,
    label: str,
    events: PairingEvents,
    *,
    clock: Clock | None = None,
    random: Random | None = None,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> PairedDevice:
    """Pair this device, waiting for as long as its code lives.

    A relay that goes away meanwhile is asked again when it is back. If it has forgotten the pairing, a new
    one begins.

    Args:
        connection: The way to the relay.
        keys: The device's keys.
        label: What the owner calls this device, 1 to 120 characters.
        events: Told what to show.

    Raises:
        PairingEnded: It was denied or has expired.
        PairingError: What the relay says does not verify; nothing of it may be used.
        RelayError: The relay refuses, or cannot be reached at the start.
    """
    clock = clock or SystemClock()
    calls = PairingCalls(connection, keys, clock, random_bytes)
    pairing = _Pairing(calls, label, events, clock, random or Random())  # noqa: S311 - jitter
    try:
        return _checked(await pairing.approval())
    finally:
        await calls.close()


class _Pairing:
    def __init__(
        self, calls: PairingCalls, label: str, events: PairingEvents, clock: Clock, random: Random
    ) -> None:
        self._calls = calls
        self._label = label
        self._events = events
        self._clock = clock
        self._random = random
        self._lost_contact = False
        self._last_trouble = ""

    async def approval(self) -> pairing_pb2.PairingApproval:
        code = await self._start(_START_ATTEMPTS)
        for restarts_left in range(_RESTARTS, -1, -1):
            self._lost_contact = False
            self._events.code(code)
            answer = await self._decision(code)
            if answer.state == pairing_pb2.PAIRING_STATE_APPROVED and answer.HasField("approval"):
                return answer.approval
            if answer.state == pairing_pb2.PAIRING_STATE_DENIED:
                raise PairingEnded(denied=True)
            early = code.deadline - self._clock.monotonic() > _MARGIN_SECONDS
            # Without a relay that was away, an early end is another process that pairs with these keys:
            # starting anew would take its code away in turn.
            if not (early and self._lost_contact and restarts_left):
                break
            code = await self._start(_START_ATTEMPTS)
        raise PairingEnded(denied=False)

    async def _start(self, attempts: int) -> PairingCode:
        for attempt in range(1, attempts + 1):
            try:
                asked_at = self._clock.monotonic()
                answer = await self._calls.start(self._label, _platform())
            except RelayError as error:
                wait = self._wait_to_start(error, attempt)
                if attempt == attempts or wait > _LONGEST_START_WAIT_SECONDS or not may_pass(error):
                    raise
                self._events.trouble(f"{error}; trying again in {wait:.1f} s")
                await self._clock.sleep(wait)
            else:
                return _code_of(answer, asked_at)
        raise AssertionError("the last attempt has ended one way or the other")

    def _wait_to_start(self, error: RelayError, attempt: int) -> float:
        return (error.retry_after_ms or 0) / 1000 + self._random.uniform(0, 2.0**attempt)

    async def _decision(self, code: PairingCode) -> pairing_pb2.WatchPairingResponse:
        """The answer that is no PENDING; the one for an expired code when no relay says anything."""
        expired = pairing_pb2.WatchPairingResponse(state=pairing_pb2.PAIRING_STATE_EXPIRED)
        while self._clock.monotonic() < code.deadline + _MARGIN_SECONDS:
            answer, streams_work = await self._by_watching(code)
            if answer is not None:
                return answer
            for _ in range(1 if streams_work else _POLLS):
                answer = await self._by_polling(code)
                if answer is not None:
                    return answer
                await self._clock.sleep(code.poll_seconds)
        return expired

    async def _by_watching(self, code: PairingCode) -> tuple[pairing_pb2.WatchPairingResponse | None, bool]:
        """The decision, if there was one before the stream ended; and whether anything came over it."""
        came = False
        try:
            async for answer in self._calls.watch(code.device_code):
                came = True
                if answer.state != pairing_pb2.PAIRING_STATE_PENDING:
                    return answer, True
        except RelayError as error:
            self._note(error)
        # A stream that has never worked says nothing about the relay, and one that breaks does.
        self._lost_contact = self._lost_contact or came
        return None, came

    async def _by_polling(self, code: PairingCode) -> pairing_pb2.WatchPairingResponse | None:
        try:
            answer = await self._calls.poll(code.device_code)
        except RelayError as error:
            self._note(error)
            self._lost_contact = True
            return None
        if answer.state == pairing_pb2.PAIRING_STATE_PENDING:
            return None
        approval = answer.approval if answer.HasField("approval") else None
        return pairing_pb2.WatchPairingResponse(state=answer.state, approval=approval)

    def _note(self, error: RelayError) -> None:
        """Goes on after trouble that may pass.

        Raises:
            RelayError: It will not.
        """
        if not may_pass(error):
            raise error
        # The same trouble comes again with every attempt, and one line tells of it.
        if str(error) != self._last_trouble:
            self._last_trouble = str(error)
            self._events.trouble(f"{error}; still waiting")


def _platform() -> pairing_pb2.Platform.ValueType:
    return _PLATFORMS.get(sys.platform, pairing_pb2.PLATFORM_LINUX)


def _code_of(answer: pairing_pb2.StartPairingResponse, asked_at: float) -> PairingCode:
    return PairingCode(
        user_code=answer.user_code,
        verification_url=answer.verification_url,
        deadline=asked_at + answer.expires_in.ToMilliseconds() / 1000,
        device_code=answer.device_code,
        # The bounds that the protocol has always had for it.
        poll_seconds=min(60.0, max(0.5, answer.poll_interval.ToMilliseconds() / 1000)),
    )


def _checked(approval: pairing_pb2.PairingApproval) -> PairedDevice:
    """What the approval says, or nothing of it: one bad site makes all of it suspect."""
    for name, value in (("runner id", approval.runner_id), ("owner", approval.owner)):
        if not _is_identifier(value):
            raise PairingError(f"the relay's {name} for this device is none; nothing was kept")
    pins: dict[str, PublicIdentity] = {}
    for site in approval.directory.sites:
        identity = identity_from_proto(site.identity)
        if identity.key_id != site.key_id or not verify_binding(identity):
            raise PairingError(
                f"the keys that the relay has for the site {_shown(site.key_id)} do not verify; nothing was"
                " kept: tell whoever runs the relay"
            )
        pins[identity.key_id] = identity
    key = approval.control_plane_key if approval.HasField("control_plane_key") else None
    if key is not None and len(key) != PUBLIC_KEY_BYTES:
        raise PairingError("the relay's control-plane key is none; nothing was kept")
    return PairedDevice(approval.runner_id, approval.owner, pins, key)


def _is_identifier(text: str) -> bool:
    return 0 < len(text) <= IDENTIFIER_CHARACTERS and not any(
        unicodedata.category(character) == "Cc" for character in text
    )


def _shown(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text[:64])
