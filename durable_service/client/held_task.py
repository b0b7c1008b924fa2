"""A lease as its holder may believe in it: until an instant of its own monotonic clock, and no longer."""

from typing import Final

from durable_service.client.errors import LeaseLostError
from durable_service.client.stop_signal import StopCause, StopSignal
from sealwork.durable.v1 import lease_pb2, task_pb2
from service_common.client_session_types import seconds_of
from service_common.clocks import Clock, TimerHandle

# What lies between the last safe instant and the end of the lease: time for a write that is under way.
_MARGIN_SHARE: Final = 0.1
_MARGIN_SECONDS: Final = 5.0

_END_TEXTS: Final = {
    lease_pb2.LEASE_END_REASON_EXPIRED: "it was not renewed in time",
    lease_pb2.LEASE_END_REASON_SUPERSEDED: "another worker has claimed it",
    lease_pb2.LEASE_END_REASON_RELEASED: "it was given back",
    lease_pb2.LEASE_END_REASON_TAKEN_BACK: "the service took it back",
    lease_pb2.LEASE_END_REASON_TASK_ENDED: "the task was ended by somebody else",
}


class HeldTask:
    """One lease, from its claim to its end.

    Time counts from when a question was sent: the store cannot have counted from earlier, and this worker
    must not believe in more than the store does.

    Attributes:
        signal: Set when work for the task should stop.
        ref: The lease as every write under it names it.
        over: The task is given back or ended; nothing is renewed any more.
        lease_seconds: What the last claim or renewal gave.
    """

    def __init__(
        self,
        task_id: str,
        worker_id: str,
        fence: int,
        *,
        remaining_seconds: float,
        sent_at: float,
        clock: Clock,
    ) -> None:
        """Hold a lease.

        Args:
            task_id: The task.
            worker_id: Who holds it.
            fence: The fence that was granted.
            remaining_seconds: As the answer said.
            sent_at: When the question was sent, by the clock's monotonic half.
            clock: Counts.
        """
        self.ref = lease_pb2.LeaseRef(task_id=task_id, worker_id=worker_id, fence=fence)
        self.signal = StopSignal(task_id)
        self.over = False
        self.lease_seconds = remaining_seconds
        self._clock = clock
        self._counted_from = float("-inf")
        self._deadline = float("-inf")
        self._timer: TimerHandle | None = None
        self.extend(remaining_seconds, sent_at)

    @property
    def task_id(self) -> str:
        """The task."""
        return self.ref.task_id

    @property
    def key(self) -> tuple[str, int]:
        """What tells this lease from every other one of the worker."""
        return self.ref.task_id, self.ref.fence

    @property
    def is_held(self) -> bool:
        """Whether anything may still be written under it."""
        if not self.over and self._clock.monotonic() >= self._deadline:
            # The timer may be late: a process that stood still learns it here.
            self.lose("it was not renewed in time")
        return not self.over and self.signal.cause is not StopCause.LEASE_LOST

    def require_held(self) -> None:
        """Do nothing while it is held.

        Raises:
            LeaseLostError: It is not.
        """
        if not self.is_held:
            self.signal.raise_if_set()
            raise LeaseLostError(self.task_id)

    def extend(self, remaining_seconds: float, sent_at: float) -> None:
        """Count anew; an answer to an older question than the last one changes nothing."""
        if sent_at < self._counted_from or self.over or self.signal.cause is StopCause.LEASE_LOST:
            return
        self._counted_from = sent_at
        self.lease_seconds = remaining_seconds
        margin = min(_MARGIN_SECONDS, remaining_seconds * _MARGIN_SHARE)
        self._deadline = sent_at + remaining_seconds - margin
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(
            max(0.0, self._deadline - self._clock.monotonic()), lambda: self.is_held
        )

    def heed(self, verdict: lease_pb2.LeaseVerdict, sent_at: float) -> None:
        """Take the service's word on it; `sent_at` is when it was asked, by the monotonic clock."""
        if self.over:
            return
        match verdict.state:
            case lease_pb2.LEASE_STATE_ACTIVE:
                self.extend(seconds_of(verdict.remaining), sent_at)
            case lease_pb2.LEASE_STATE_CANCEL_REQUESTED:
                if seconds_of(verdict.remaining):
                    self.extend(seconds_of(verdict.remaining), sent_at)
                self.signal.set(StopCause.CANCEL_REQUESTED)
            case lease_pb2.LEASE_STATE_LOST:
                self.lose(_END_TEXTS.get(verdict.end_reason, "the service does not know it any more"))
            case lease_pb2.LEASE_STATE_COMPLETED:
                self.lose("the task has ended")
            case _:
                pass

    def heed_status(self, status: task_pb2.TaskStatus) -> None:
        """Learn of a cancel from the answer to any write."""
        if status.state == task_pb2.TASK_STATE_CANCEL_REQUESTED:
            self.signal.set(StopCause.CANCEL_REQUESTED)

    def lose(self, why: str) -> None:
        """Know that it is lost; harmless once it is over."""
        if not self.over:
            self._stop_timer()
            self.signal.set(StopCause.LEASE_LOST, why)

    def end(self) -> None:
        """Know that the task is given back or ended by this worker."""
        self.over = True
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
