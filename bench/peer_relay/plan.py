"""Which workloads the published relay is put to, and for how long."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.peer_relay.cancels import PeerCancels
from bench.peer_relay.heartbeats import Fleet, PeerHeartbeats
from bench.peer_relay.installation import Installer
from bench.peer_relay.jobs import PeerJobs
from bench.peer_relay.pair import JobLoad

SMALL, LARGE, IN_FLIGHT = "peer 1 KiB", "peer 64 KiB", "peer 1 KiB, 4 in flight"
CANCELS = "peer, told by heartbeat"
_LOADS = {
    SMALL: JobLoad(payload_bytes=1024),
    LARGE: JobLoad(payload_bytes=65_536),
    IN_FLIGHT: JobLoad(payload_bytes=1024, in_flight=4),
}


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: rounds of bursts, and seconds a burst.

    Attributes:
        cancel_span: cancels fall on job ages from 0 to this many seconds.
        fleets: devices that keep in touch, each fleet measured on its own.
    """

    job_rounds: int
    job_seconds: float
    fleets: Sequence[Fleet]
    heartbeat_rounds: int
    heartbeat_seconds: float
    cancel_span: float
    cancel_daemons: int


_IDLE = (Fleet(100), Fleet(1_000), Fleet(5_000))
QUICK = Effort(2, 3.0, (*_IDLE, Fleet(1_000, busy=True)), 1, 6.0, 12.0, 60)
FULL = Effort(5, 6.0, (*_IDLE, Fleet(1_000, busy=True), Fleet(5_000, busy=True)), 2, 15.0, 30.0, 100)


def heartbeats_name(fleet: Fleet) -> str:
    return f"peer, {fleet.devices:,} {'busy' if fleet.busy else 'idle'}"


def job_variants(installer: Installer) -> list[PeerJobs]:
    """Full job cycles: 1 KiB and 64 KiB, and 1 KiB with four jobs in flight for each device."""
    return [PeerJobs(name, installer, load) for name, load in _LOADS.items()]


def heartbeat_variant(installer: Installer, fleet: Fleet) -> PeerHeartbeats:
    return PeerHeartbeats(heartbeats_name(fleet), installer, fleet)


def cancel_variant(installer: Installer, effort: Effort) -> PeerCancels:
    return PeerCancels(CANCELS, installer, effort.cancel_daemons)
