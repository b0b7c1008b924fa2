"""What the functions on the server announce, from there to the listeners of this process.

A message that is lost costs time only: whatever it told of is in the store. `on_gap` is called
whenever some may have been lost.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orjson

from relay_service.core.model import (
    Audience,
    Change,
    ChurnReport,
    LeaseChanged,
    LeaseEnd,
    LeaseRef,
    NoticeAdded,
    PairingDecided,
    ProjectionShared,
    Route,
    SessionOpened,
    WorkAvailable,
)
from relay_service.store.base import Listener, StoreUnavailable
from relay_service.store.valkey_connection import CommandConnection, waiting_seconds
from relay_service.store.valkey_wire import FAILURES, Wire, command

_QUIET_SECONDS = 15.0
_CLOSING_SECONDS = 1.0
_ORIGIN_BYTES = 8

_logger = logging.getLogger(__name__)


class Listeners:
    """Who is told of changes, and how this store recognises its own among those of all."""

    def __init__(self) -> None:
        self.origin = secrets.token_hex(_ORIGIN_BYTES)
        self._own = f'["{self.origin}",'.encode()
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener` for every change, in order; the answer ends that."""
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def clear(self) -> None:
        self._listeners.clear()

    def is_own(self, text: bytes) -> bool:
        """Whether this store has made these changes, so that the reply has told of them already."""
        return text.startswith(self._own)

    def tell(self, text: bytes) -> None:
        """Tells the listeners of changes that this store has made; one that fails harms nobody else."""
        self._tell(list(_changes_from(text)))

    def tell_of_others(self, text: bytes) -> None:
        """Tells the listeners of changes that another store has made.

        A churn report is for the relay that has noticed it alone, or all would count it.
        """
        self._tell([change for change in _changes_from(text) if not isinstance(change, ChurnReport)])

    def _tell(self, changes: Sequence[Change]) -> None:
        for listener in tuple(self._listeners):
            for change in changes:
                try:
                    listener(change)
                except Exception:
                    _logger.exception("a listener of the store failed")


class Subscription:
    """Hears the changes that other replicas make."""

    def __init__(
        self,
        make_wire: Callable[[], Wire],
        channel: str,
        listeners: Listeners,
        on_gap: Callable[[], None] | None = None,
    ) -> None:
        self._make_wire = make_wire
        self._channel = channel
        self._listeners = listeners
        self._on_gap = on_gap
        self._markers: dict[str, asyncio.Future[None]] = {}
        self._heard_before = False
        self._subscribed = asyncio.Event()
        self._patience: asyncio.Timeout | None = None
        # Kept here, because the loop itself holds tasks weakly.
        self._keeper: asyncio.Task[None] | None = None

    async def start(self, seconds: float) -> None:
        """Subscribes and stays subscribed until `close`.

        Raises:
            StoreUnavailable: no subscription within this time; attempts have ended.
        """
        self._keeper = asyncio.create_task(self._keep())
        try:
            async with asyncio.timeout(seconds):
                await self._subscribed.wait()
        except TimeoutError:
            await self.close()
            raise StoreUnavailable("no subscription at the server") from None

    async def close(self) -> None:
        """Ends the subscription."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            self._keeper = None

    def renew(self) -> None:
        """Subscribes anew: the address may lead to another server than before."""
        if self._patience is not None and self._patience.when() is None:
            self._patience.reschedule(asyncio.get_running_loop().time())

    async def delivered(self, connection: CommandConnection, seconds: float = 5.0) -> None:
        """Returns when all changes that other stores made before have reached the listeners.

        Raises:
            StoreUnavailable: the server cannot be asked, or there is no subscription.
        """
        # Other stores take it for an announcement of a later release, and skip it.
        marker = f'["{self._listeners.origin}","{secrets.token_hex(_ORIGIN_BYTES)}",[]]'
        returned = self._markers[marker] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._subscribed.wait()
                await connection.call("PUBLISH", self._channel, marker)
                await returned
        except TimeoutError:
            raise StoreUnavailable("the subscription is silent") from None
        finally:
            del self._markers[marker]

    async def _keep(self) -> None:
        attempt = 0
        while True:
            wire = self._make_wire()
            try:
                async with asyncio.timeout(None) as self._patience:
                    await wire.connect()
                    await wire.send_packed_command([command("SUBSCRIBE", self._channel)], check_health=False)
                    await self._hear(wire)
            except FAILURES as error:
                _logger.warning("the subscription at the store failed: %s: %s", type(error).__name__, error)
            except Exception:
                # Whatever it was, another subscription begins with a clean slate.
                _logger.exception("the subscription at the store failed")
            finally:
                self._patience = None
                attempt = 0 if self._subscribed.is_set() else attempt + 1
                self._subscribed.clear()
                self._give_up()
                await _end(wire)
            await asyncio.sleep(waiting_seconds(attempt))

    def _give_up(self) -> None:
        """What was published before now may never come."""
        for marker in self._markers.values():
            if not marker.done():
                marker.set_exception(StoreUnavailable("the subscription was lost"))
                # Whoever waits may have failed already for another reason.
                marker.exception()

    async def _hear(self, wire: Wire) -> None:
        """Takes messages until the subscription is lost, which is an exception."""
        asked = False
        while True:
            message = await wire.read_response(timeout=_QUIET_SECONDS)
            if message is None:
                if asked:
                    raise TimeoutError("no answer within the time")
                await wire.send_packed_command([command("PING")], check_health=False)
            asked = message is None
            if message is not None:
                self._take(message)

    def _take(self, message: Sequence[Any]) -> None:
        if message[0] == b"subscribe":
            self._subscribed.set()
            if self._heard_before and self._on_gap is not None:
                self._on_gap()
            self._heard_before = True
        elif message[0] == b"message":
            self._tell(message[2])

    def _tell(self, text: bytes) -> None:
        marker = self._markers.get(text.decode(errors="replace"))
        if marker is not None and not marker.done():
            marker.set_result(None)
        elif marker is None and not self._listeners.is_own(text):
            self._listeners.tell_of_others(text)


def _changes_from(text: bytes) -> Iterator[Change]:
    try:
        _, site_id, words = orjson.loads(text)
        for word in words:
            change = change_from(site_id, word)
            if change is not None:
                yield change
    except (ValueError, LookupError, TypeError):
        _logger.warning("an announcement of the store could not be read")


def change_from(site_id: str, word: Sequence[Any]) -> Change | None:
    """One change as a function on the server tells it; None for one that is not known here.

    Raises:
        ValueError: a value that is not known here.
        LookupError, TypeError: it is incomplete.
    """
    kind, *facts = word
    match kind:
        case "work":
            owner, what, audience, runner = facts
            return WorkAvailable(Route(site_id, owner), what, Audience(audience), runner or None)
        case "notice":
            return NoticeAdded(site_id)
        case "churn":
            owner, expiries, window_ms, at_ms = facts
            return ChurnReport(Route(site_id, owner), expiries, window_ms, int(at_ms))
        case "lease":
            return _lease_changed(site_id, facts)
        case "session":
            runner, session_id, epoch = facts
            return SessionOpened(runner, session_id, int(epoch))
        case "projection":
            (revision,) = facts
            return ProjectionShared(int(revision))
        case "pairing":
            (pairing,) = facts
            return PairingDecided(pairing)
    return None


def _lease_changed(site_id: str, facts: Sequence[str]) -> LeaseChanged:
    runner, job_id, lease_id, fact = facts
    lease = LeaseRef(job_id, lease_id)
    if fact == "payload-ready":
        return LeaseChanged(runner, lease, site_id, payload_ready=True)
    if fact == "cancel-requested":
        return LeaseChanged(runner, lease, site_id, cancel_requested=True)
    return LeaseChanged(runner, lease, site_id, end=LeaseEnd(fact))


async def _end(wire: Wire) -> None:
    try:
        async with asyncio.timeout(_CLOSING_SECONDS):
            await wire.disconnect(nowait=True)
    except FAILURES:
        _logger.debug("a lost subscription could not be closed in order")
