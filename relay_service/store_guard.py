"""A store that can be away, as the planes and streams see it."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import grpc

from relay_service.store.base import RoutingStore, StoreUnavailable
from relay_service.store.pairings import PairingStore
from service_common.errors import ServiceError

_RETRY_AFTER_MS = 1_000

Answer = TypeVar("Answer")


def guarded(store: RoutingStore) -> RoutingStore:
    """The store, with UNAVAILABLE/STORE_UNAVAILABLE in place of its own word for it.

    A stream's items and calls are answered with it and the stream lives on: leases are not
    lost by a store that is away, only news of them is late.
    """
    return cast("RoutingStore", _Guard(store))


class _Guard:
    """Passes every operation on; each is wrapped once."""

    def __init__(self, store: RoutingStore | PairingStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._store, name)
        if name == "pairings":
            operation = _Guard(operation)
        elif name != "listen":
            operation = _translated(operation)
        setattr(self, name, operation)
        return operation


def _translated(operation: Callable[..., Awaitable[Answer]]) -> Callable[..., Awaitable[Answer]]:
    async def ask(*args: Any, **options: Any) -> Answer:
        try:
            return await operation(*args, **options)
        except StoreUnavailable:
            raise store_unavailable() from None

    return ask


def store_unavailable() -> ServiceError:
    """The store cannot be reached."""
    return ServiceError(
        grpc.StatusCode.UNAVAILABLE,
        "STORE_UNAVAILABLE",
        "the relay's store cannot be reached; repeat the request, no lease is lost by this",
        retry_after_ms=_RETRY_AFTER_MS,
    )
