"""Now and then: the removal of bytes that no task refers to."""

from typing import Final

import structlog

from durable_service.blobs.base import BlobStore
from durable_service.blobs.collection import collect_orphans
from durable_service.store.base import TaskStore
from service_common.clocks import Clock

_log: Final = structlog.get_logger(__name__)

_PERIOD_SECONDS: Final = 3_600.0
# Far longer than an upload takes: its bytes are kept before anything refers to them.
_GRACE_MS: Final = 3_600_000


class BlobCollector:
    """Collects once an hour."""

    def __init__(self, store: TaskStore, blobs: BlobStore, clock: Clock) -> None:
        self._store = store
        self._blobs = blobs
        self._clock = clock

    async def run(self) -> None:
        """Collects until cancelled."""
        while True:
            await self._clock.sleep(_PERIOD_SECONDS)
            try:
                collected = await collect_orphans(
                    self._blobs, self._store.referenced, self._clock.now_ms() - _GRACE_MS
                )
            except Exception as error:  # noqa: BLE001 - the next hour tries again
                _log.error("blob_collection_failed", exc_info=error)
                continue
            if collected.removed:
                _log.info("orphans_removed", removed=collected.removed)
