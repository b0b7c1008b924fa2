"""How much of the durable service is measured, and what is expected of it."""

from collections.abc import Sequence
from dataclasses import dataclass

# An operation on a store with many tasks may take so many times as long as on one with none.
GROWTH = 1.5
TASKS = 100_000
CREWS: Sequence[int] = (1, 8, 64)
# Writes under way at the same time where they are compared with those of the store by itself.
IN_FLIGHT = 32
SHARE_OF_STORE = 0.6
# Streams that several handlers of a worker share.
FEW_STREAMS = 4
# gRPC's poller of before its event engine.
OLDER_POLLER = "-event_engine_listener,-event_engine_client,-event_engine_callback_cq"
# Milliseconds at the 99th percentile, of a service with nothing else to do.
CANCEL_MS = 100.0
WAKE_MS = 200.0


@dataclass(frozen=True, slots=True)
class DurableEffort:
    """How long to measure.

    Attributes:
        operations: of each kind in a round; as many as there are workers where those are more.
        latencies: tasks for each of the latencies, and `latency_seconds` for all of them at the most.
    """

    rounds: int
    operations: int
    write_rounds: int
    write_seconds: float
    latencies: int
    latency_seconds: float


QUICK = DurableEffort(
    rounds=5, operations=128, write_rounds=5, write_seconds=1.0, latencies=200, latency_seconds=20.0
)
FULL = DurableEffort(
    rounds=20, operations=128, write_rounds=10, write_seconds=3.0, latencies=1_000, latency_seconds=120.0
)
