"""Opens the stores that a relay can have, each empty and each apart from all others."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory
from time import thread_time, time
from uuid import uuid4

from bench.placement import on_server_core
from bench.process_stats import main_thread_seconds
from bench.stores.valkey_server import ValkeyServer, valkey_program
from bench.variant import VariantUnavailableError
from relay_service.store.base import RoutingStore, StoreUnavailable
from relay_service.store.memory import MemoryRoutingStore

_CONNECT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """A store, and the process that keeps what is in it.

    Attributes:
        cpu_seconds: what the thread that carries out the operations has taken so far.
    """

    store: RoutingStore
    process_id: int
    cpu_seconds: Callable[[], float]


OpenStore = Callable[[], AbstractAsyncContextManager[OpenedStore]]


@asynccontextmanager
async def memory() -> AsyncIterator[OpenedStore]:
    """In the memory of this very process."""
    store = MemoryRoutingStore(lambda: int(time() * 1000), lambda: str(uuid4()))
    yield OpenedStore(store, os.getpid(), thread_time)
    await store.close()


@asynccontextmanager
async def valkey() -> AsyncIterator[OpenedStore]:
    """On a Valkey server over TCP.

    Raises:
        VariantUnavailableError: there is none here.
    """
    server = ValkeyServer()
    try:
        await server.start()
        async with _connected(server.url) as store:
            yield _on_server(store, server.process_id)
    finally:
        await server.stop()


@asynccontextmanager
async def embedded_valkey() -> AsyncIterator[OpenedStore]:
    """On a Valkey server as `--store embedded:DIR` runs it.

    Raises:
        VariantUnavailableError: there is none here.
    """
    program = valkey_program()
    from relay_service.store.embedded_valkey import EmbeddedValkey, EmbeddedValkeyError

    with TemporaryDirectory(prefix="bench-embedded-") as folder:
        server = EmbeddedValkey(folder, program)
        try:
            with on_server_core():
                await server.start()
        except EmbeddedValkeyError as error:
            raise VariantUnavailableError(str(error)) from None
        try:
            async with _connected(server.url) as store:
                assert server.process_id is not None
                yield _on_server(store, server.process_id)
        finally:
            await server.close()


def _on_server(store: RoutingStore, process_id: int) -> OpenedStore:
    return OpenedStore(store, process_id, partial(main_thread_seconds, process_id))


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[RoutingStore]:
    from relay_service.store.valkey import ValkeyRoutingStore

    store = ValkeyRoutingStore(url)
    try:
        await store.start(_CONNECT_SECONDS)
    except StoreUnavailable as error:
        raise VariantUnavailableError(str(error)) from None
    try:
        yield store
    finally:
        await store.close()
