"""What the relays on one server tell each other beside jobs: streams of devices, the projection."""

from collections.abc import Callable

from relay_service.core.limits import PRESENCE_RETENTION_MS
from relay_service.store.base import SharedProjection
from relay_service.store.valkey_changes import Listeners
from relay_service.store.valkey_names import runner_tag
from relay_service.store.valkey_sites import Functions

# An epoch outlives the stream by far: a forgotten one is replaced by the clock, which is above it.
_EPOCH_KEPT_MS = 24 * PRESENCE_RETENTION_MS


class Relays:
    """Facts about relays, in slots of their own."""

    def __init__(self, functions: Functions, listeners: Listeners, clock_setting: Callable[[], str]) -> None:
        self._functions = functions
        self._listeners = listeners
        self._clock_setting = clock_setting
        self._projection_key = f"{functions.prefix}{{projection}}:shared"

    async def open_session(self, runner_id: str, session_id: str) -> int:
        key = f"{self._functions.prefix}{{{runner_tag(runner_id)}}}:epoch"
        epoch, published = await self._functions.call(
            "open_session",
            (key,),
            self._clock_setting(),
            self._listeners.origin,
            runner_id,
            session_id,
            _EPOCH_KEPT_MS,
        )
        self._listeners.tell(published)
        return int(epoch)

    async def share_projection(self, revision: int, document: bytes) -> bool:
        (published,) = await self._functions.call(
            "share_projection", (self._projection_key,), self._listeners.origin, revision, document
        )
        if published is None:
            return False
        self._listeners.tell(published)
        return True

    async def shared_projection(self) -> SharedProjection | None:
        revision, document = await self._functions.call("shared_projection", (self._projection_key,))
        return None if revision is None else SharedProjection(int(revision), document)
