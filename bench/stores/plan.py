"""Which stores are measured, and what is expected of them."""

from dataclasses import dataclass

from bench.stores import opened
from bench.stores.opened import OpenStore

# An operation on many queued jobs may take so many times as long as on few.
GROWTH = 2.0


@dataclass(frozen=True, slots=True)
class StorePlan:
    """One kind of store.

    Attributes:
        in_flight: operations at a time where rates are measured; more than one at a time is nothing to a
            store that answers before it returns.
        most_queued: the largest population that it is measured with.
    """

    title: str
    open: OpenStore
    in_flight: int
    most_queued: int = 1_000_000


STORES = (
    StorePlan("memory", opened.memory, in_flight=1),
    StorePlan("Valkey over TCP, append-only file written each second", opened.valkey, in_flight=16),
    StorePlan(
        "embedded Valkey, on the disk before each answer",
        opened.embedded_valkey,
        in_flight=16,
        most_queued=100_000,
    ),
)
