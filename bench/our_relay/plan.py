"""How long our relay and the published one are measured side by side, and on how much."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.databases import plan as databases
from bench.durable import plan as durable
from bench.peer_relay import plan as peer
from bench.peer_relay.pair import JobLoad


@dataclass(frozen=True, slots=True)
class JobGoals:
    """Least ratios: the bound and the stretch goal of CPU a job (peer to ours) and of rate (ours to peer)."""

    cpu: tuple[float, float]
    rate: tuple[float, float]


@dataclass(frozen=True, slots=True)
class JobPlan:
    """One load of full job cycles, and the name of the peer's variant of it."""

    title: str
    load: JobLoad
    peer_name: str
    goals: JobGoals


JOBS = (
    JobPlan("1 KiB, one in flight", JobLoad(1024), peer.SMALL, JobGoals((3.0, 4.4), (2.5, 3.4))),
    JobPlan(
        "1 KiB, four in flight", JobLoad(1024, in_flight=4), peer.IN_FLIGHT, JobGoals((3.0, 7.0), (2.5, 4.0))
    ),
    JobPlan("64 KiB, one in flight", JobLoad(65_536), peer.LARGE, JobGoals((7.0, 10.0), (2.5, 5.5))),
)

# By devices: the least ratio of CPU a renewal, peer to ours at the same pace, and the stretch goal.
RENEWAL_GOALS = {1_000: (2.2, 3.2), 5_000: (2.8, 4.0)}
MEMORY_KIB = 55.0

# Milliseconds at the 99th percentile.
HANDLER_MS = 100.0
NOTICE_MS = {5_000: 20.0}
CANCEL_RATIO = (400.0, 1_500.0)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Devices that renew: measured against the peer, or alone where the peer could not keep up at all."""

    devices: int
    against_peer: bool = True
    at_default_pace: bool = True


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure.

    Attributes:
        cancel_span: seconds over which the peer's cancels are spread; also the longest of our bursts.
        latency_jobs: jobs for each figure of the latencies.
        connected: numbers of connected devices at which latencies are taken.
        queued: numbers of queued jobs at which the stores are measured, the least first.
        drains: how often the queue of 10,000 jobs is drained.
        durable: the same of the durable service, and `databases` of it on databases.
    """

    job_rounds: int
    job_seconds: float
    fleets: Sequence[Fleet]
    renewal_rounds: int
    renewal_seconds: float
    cancel_span: float
    cancel_daemons: int
    latency_jobs: int
    connected: Sequence[int]
    queued: Sequence[int]
    store_rounds: int
    drains: int
    durable: durable.DurableEffort
    databases: databases.DatabasesEffort


QUICK = Effort(
    job_rounds=2,
    job_seconds=2.0,
    fleets=(Fleet(1_000), Fleet(5_000, at_default_pace=False)),
    renewal_rounds=1,
    renewal_seconds=5.0,
    cancel_span=10.0,
    cancel_daemons=60,
    latency_jobs=250,
    connected=(1, 1_000),
    queued=(1_000, 10_000, 100_000),
    store_rounds=50,
    drains=1,
    durable=durable.QUICK,
    databases=databases.QUICK,
)
FULL = Effort(
    job_rounds=5,
    job_seconds=4.0,
    fleets=(Fleet(100), Fleet(1_000), Fleet(5_000), Fleet(10_000, against_peer=False)),
    renewal_rounds=2,
    renewal_seconds=10.0,
    cancel_span=30.0,
    cancel_daemons=100,
    latency_jobs=1_000,
    connected=(1, 1_000, 5_000),
    queued=(1_000, 10_000, 100_000, 1_000_000),
    store_rounds=150,
    drains=3,
    durable=durable.FULL,
    databases=databases.FULL,
)
