"""A device's jobs: what is kept of each from its grant until its result is sealed."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from relay_service.client.backends.base import RunLimits
from relay_service.client.grants import Grant
from relay_service.client.outcomes import Outcome, SealedOutcome
from relay_service.client.payloads import Payload
from relay_service.core.model import Capability
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from service_common.clocks import Clock, TimerHandle

# A lease that was never given a length by the relay is not held for ever.
_LEAST_WAIT_SECONDS: Final = 0.01


class Phase(StrEnum):
    """How far a held job has come."""

    DECIDING = "deciding"
    WAITING = "waiting"
    FETCHING = "fetching"
    RUNNING = "running"


class HeldJob:
    """A job that this device holds.

    Attributes:
        stub: Its public description.
        signed: The control plane's grant as it came; None when there was none.
        grant: What of it was accepted; None while nothing was.
        lease: The lease it is held under.
        deadline: When the lease ends, by this machine's monotonic clock, unless it is renewed.
        phase: How far it has come.
        ready: The news of its payload, when it came before the decision to take the job.
        sought: Its payload is asked for without having been announced.
        fetches: How often its payload was asked for and was not there yet.
        cancelled: Set when the work is to stop, for whatever reason.
        cancel_requested: The site has withdrawn it, so it is reported as canceled.
        task: What works on it.
    """

    __slots__ = (
        *("cancel_requested", "cancelled", "deadline", "fetches", "grant", "lease", "phase", "ready"),
        *("signed", "sought", "stub", "task"),
    )

    def __init__(
        self,
        stub: job_pb2.JobStub,
        lease_id: str,
        deadline: float,
        signed: job_pb2.SignedGrant | None = None,
    ) -> None:
        """Hold a job that has just been granted."""
        self.stub = stub
        self.signed = signed
        self.grant: Grant | None = None
        self.lease = job_pb2.LeaseRef(job_id=stub.id, lease_id=lease_id)
        self.deadline = deadline
        self.phase = Phase.WAITING
        self.ready: daemon_plane_pb2.PayloadReady | None = None
        self.sought = False
        self.fetches = 0
        self.cancelled = asyncio.Event()
        self.cancel_requested = False
        self.task: asyncio.Task[None] | None = None

    def interrupt(self) -> None:
        """Stop the work at once."""
        self.cancelled.set()
        if self.task is not None and self.phase is Phase.RUNNING:
            self.task.cancel()


@dataclass(frozen=True, slots=True)
class JobContext:
    """What a handler is given.

    Attributes:
        job_id: The job.
        kind: What kind of work it is.
        owner: Whose work it is.
        site: Key id of the site that sealed the payload.
        purpose: The need it serves; None for the default.
        payload: What is to be done; plain text for a kind that this library does not know.
        capability: The row of the matrix that it was taken by.
        limits: What the run may cost.
        own: Whether it is work of this device's owner.
        cancelled: Set when the work is to stop. The handler's task is cancelled at the same moment.
        seconds_left: Returns how long the lease still lasts unless it is renewed. When it is over, side
            effects must have stopped.
    """

    job_id: str
    kind: str
    owner: str
    site: str
    purpose: str | None
    payload: Payload | str = field(repr=False)
    capability: Capability
    limits: RunLimits
    own: bool
    cancelled: asyncio.Event = field(repr=False)
    seconds_left: Callable[[], float] = field(repr=False)


Handler = Callable[[JobContext], Awaitable[Outcome | SealedOutcome]]
"""Does a job. Returns what came of it, alone or with what ran it."""


class HeldJobs:
    """All jobs that this device holds, and the timer that stops work whose lease has run out.

    The timer needs no server: whoever is cut off from the relay stops by itself, since another device may
    have the job by then.
    """

    def __init__(self, clock: Clock, on_lapse: Callable[[HeldJob], None]) -> None:
        """Hold nothing.

        Args:
            clock: Its monotonic half counts.
            on_lapse: Told of every job whose lease has run out.
        """
        self._clock = clock
        self._on_lapse = on_lapse
        self._jobs: dict[str, HeldJob] = {}
        self._timer: TimerHandle | None = None
        self._due = float("inf")

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[HeldJob]:
        return iter(tuple(self._jobs.values()))

    def get(self, lease_id: str) -> HeldJob | None:
        """Return the job that is held under this lease."""
        return self._jobs.get(lease_id)

    def add(self, job: HeldJob) -> None:
        """Hold a job."""
        self._jobs[job.lease.lease_id] = job
        if job.deadline < self._due:
            self._arm(job.deadline)

    def remove(self, job: HeldJob) -> bool:
        """Hold a job no longer; False when it was not held."""
        return self._jobs.pop(job.lease.lease_id, None) is not None

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        wait = max(_LEAST_WAIT_SECONDS, due - self._clock.monotonic())
        self._timer = self._clock.call_later(wait, self._lapse)

    def _lapse(self) -> None:
        # Renewals only move deadlines back, so the timer is set anew when it fires and not for each of them.
        now = self._clock.monotonic()
        self._timer, self._due = None, float("inf")
        for job in self:
            if job.deadline <= now:
                self._on_lapse(job)
        if self._jobs:
            self._arm(min(job.deadline for job in self._jobs.values()))
