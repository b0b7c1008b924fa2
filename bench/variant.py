"""What is measured: a variant is one server under one workload, driven in bursts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class VariantUnavailableError(Exception):
    """A variant cannot run on this machine; the message tells the person who ran the bench why."""


class VariantFailedError(Exception):
    """A variant broke down under load; the message says how."""


@dataclass(frozen=True, slots=True)
class BurstResult:
    """What one burst did and what it cost the server.

    Attributes:
        operations: operations finished and checked.
        latencies_ms: one figure an operation, in milliseconds; may be empty where latency means nothing.
        server_cpu_seconds: user and system time that the server's processes took during the burst.
        server_rss_kib: resident memory of the server's processes at the end of the burst.
        elapsed_seconds: wall time from the first operation sent to the last one answered.
        failures: operations refused, lost or answered wrongly.
    """

    operations: int
    latencies_ms: Sequence[float]
    server_cpu_seconds: float
    server_rss_kib: int
    elapsed_seconds: float
    failures: int = 0

    @property
    def rate(self) -> float:
        """Operations a second."""
        return self.operations / self.elapsed_seconds if self.elapsed_seconds > 0 else 0.0

    @property
    def cpu_ms(self) -> float:
        """Milliseconds of server CPU an operation; infinite when nothing was done."""
        return self.server_cpu_seconds * 1000 / self.operations if self.operations else float("inf")

    @property
    def cores(self) -> float:
        """Server CPU as a share of one core."""
        return self.server_cpu_seconds / self.elapsed_seconds if self.elapsed_seconds > 0 else 0.0


class Variant(Protocol):
    """One server under one workload.

    A variant that is up but not bursting must cost its server next to nothing: others are being measured.
    """

    @property
    def name(self) -> str:
        """The name in tables, unique within a run."""
        ...

    async def start(self) -> None:
        """Bring the server up, connect, and warm up.

        Raises:
            VariantUnavailableError: it cannot run here; the others still can.
        """
        ...

    async def burst(self, seconds: float) -> BurstResult:
        """Load the server for about this long and return when everything sent is answered or given up.

        Raises:
            VariantFailedError: the server is gone or refuses everything; the variant is dropped from the run.
        """
        ...

    async def stop(self) -> None:
        """Take everything down; also called after a failed start."""
        ...
