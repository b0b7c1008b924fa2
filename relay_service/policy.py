"""What the relay asks the operator's policy, and what it makes of a policy that does not answer.

The answers are the operator's; the relay carries them and never branches on why they are what they
are. A policy that is away is asked in vain five times and then left alone for five seconds.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeVar

import structlog

from relay_service.core.circuit import OPEN_SECONDS, Circuit
from relay_service.core.model import Capability, JobStub
from service_common.clocks import Clock, TimerHandle
from service_common.metrics import Metrics

_log = structlog.get_logger(__name__)

# For both attempts of a question together.
DEADLINE_SECONDS = 2.0
# Of that, how long a policy that was not reached is waited for before it is asked once more.
RECONNECT_SECONDS = 0.5
# A stub that names no purpose has this one.
DEFAULT_PURPOSE = "default"

Answer = TypeVar("Answer")


class SlotVerdict(StrEnum):
    """Whether a need can be met at all."""

    OK = "ok"
    NOT_DECLARED = "not-declared"
    UNMAPPED = "unmapped"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Slot:
    """A need: work of this kind for this purpose, for one person at one site."""

    site_id: str
    owner: str
    purpose: str
    kind: str


@dataclass(frozen=True, slots=True)
class WonJob:
    """A job that a device has won and nobody has been told of.

    Attributes:
        matrix: what the device can do now.
    """

    site_id: str
    stub: JobStub
    lease_id: str
    device_owner: str
    runner_id: str
    matrix: tuple[Capability, ...]


@dataclass(frozen=True, slots=True)
class Granted:
    """Yes; the signed grant goes to the device as it came."""

    signed_grant: bytes


@dataclass(frozen=True, slots=True)
class Declined:
    """No: for this device never, or not now."""

    permanent: bool


Decision = Granted | Declined


class PolicyUnavailable(Exception):  # noqa: N818 - it names a state of the policy
    """The policy did not answer, or said nothing that is an answer.

    Attributes:
        may_retry: the call did not reach the policy, so that another attempt costs it nothing.
        wait_seconds: how long it will not be asked.
    """

    def __init__(self, *, may_retry: bool = False, wait_seconds: float = 0.0) -> None:
        super().__init__("the policy did not answer")
        self.may_retry = may_retry
        self.wait_seconds = wait_seconds


class PolicyService(Protocol):
    """The operator's service, over whatever wire."""

    async def check_slot(self, slot: Slot, seconds: float) -> SlotVerdict:
        """Whether a need can be met at all.

        Raises:
            PolicyUnavailable: no answer within this time.
        """

    async def author_grant(self, won: WonJob, seconds: float) -> Decision:
        """Whether a device may have the job that it has won; idempotent by lease.

        Raises:
            PolicyUnavailable: no answer within this time.
        """

    async def reconnect(self, seconds: float) -> bool:
        """Connects anew if there is no connection; False when it cannot be had within this time."""


class Policy:
    """The operator's service with a deadline, one quick retry and a circuit breaker."""

    def __init__(
        self,
        service: PolicyService,
        clock: Clock,
        metrics: Metrics,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._service = service
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._circuit = Circuit()
        self._timer: TimerHandle | None = None
        self._on_ready: list[Callable[[], None]] = []
        self._questions = metrics.counter(
            "relay_policy_questions_total", "Questions to the policy by outcome", ["method", "outcome"]
        )
        self._open = metrics.gauge(
            "relay_policy_unavailable", "1 while the policy is left alone because it did not answer"
        )

    def listen(self, on_ready: Callable[[], None]) -> None:
        """Calls back whenever the policy may be asked again."""
        self._on_ready.append(on_ready)

    def room(self, wanted: int) -> int:
        """How many of these questions it makes sense to have now: all, one as a probe, or none."""
        if not self._circuit.is_open:
            return wanted
        return min(wanted, int(self._circuit.would_admit(self._clock.monotonic())))

    def close(self) -> None:
        """Ends waiting for the policy to come back."""
        self._stop_waiting()
        self._on_ready.clear()

    async def check_slot(self, slot: Slot) -> SlotVerdict:
        """Whether a need can be met at all.

        Raises:
            PolicyUnavailable: the policy did not answer, or is left alone.
        """
        self._admit("CheckSlot")
        verdict = await self._ask("CheckSlot", lambda seconds: self._service.check_slot(slot, seconds))
        self._questions.labels("CheckSlot", verdict.value).inc()
        return verdict

    def author_grant(self, won: WonJob) -> Coroutine[Any, Any, Decision]:
        """Whether a device may have what it has won. A policy that does not answer declines for now.

        Whether it is asked at all is decided by this call, not when its answer is awaited: of several
        questions at one moment only the first probes.
        """
        try:
            self._admit("AuthorGrant")
        except PolicyUnavailable:
            return _not_now()
        return self._author_grant(won)

    async def _author_grant(self, won: WonJob) -> Decision:
        try:
            decision = await self._ask(
                "AuthorGrant", lambda seconds: self._service.author_grant(won, seconds)
            )
        except PolicyUnavailable:
            return await _not_now()
        outcome = "granted"
        if isinstance(decision, Declined):
            outcome = "declined-for-ever" if decision.permanent else "declined-for-now"
        self._questions.labels("AuthorGrant", outcome).inc()
        return decision

    def _admit(self, method: str) -> None:
        now = self._clock.monotonic()
        if not self._circuit.admit(now):
            self._questions.labels(method, "not-asked").inc()
            raise PolicyUnavailable(wait_seconds=self._circuit.wait_seconds(now))

    async def _ask(self, method: str, ask: Callable[[float], Coroutine[Any, Any, Answer]]) -> Answer:
        try:
            answer = await self._ask_twice(self._clock.monotonic() + self._deadline_seconds, ask)
        except PolicyUnavailable as error:
            self._questions.labels(method, "unavailable").inc()
            self._note_failure()
            error.wait_seconds = self._circuit.wait_seconds(self._clock.monotonic())
            raise
        except BaseException:
            self._circuit.given_up()
            if self._circuit.is_open:
                # It was the probe, and its caller has gone: somebody else may ask.
                self._tell()
            raise
        self._note_success()
        return answer

    async def _ask_twice(self, until: float, ask: Callable[[float], Coroutine[Any, Any, Answer]]) -> Answer:
        try:
            return await ask(until - self._clock.monotonic())
        except PolicyUnavailable as error:
            # A connection that had died unnoticed, or a policy that is started again this moment.
            patience = min(RECONNECT_SECONDS, until - self._clock.monotonic())
            if not error.may_retry or patience <= 0 or not await self._service.reconnect(patience):
                raise
        return await ask(max(0.0, until - self._clock.monotonic()))

    def _note_failure(self) -> None:
        was_open = self._circuit.is_open
        if not self._circuit.failed(self._clock.monotonic()):
            return
        self._open.set(1)
        if not was_open:
            # Once an outage: a probe that fails only prolongs it.
            _log.error("policy_unavailable")
        self._timer = self._clock.call_later(OPEN_SECONDS, self._tell)

    def _note_success(self) -> None:
        if not self._circuit.succeeded():
            return
        self._open.set(0)
        _log.info("policy_answers_again")
        self._stop_waiting()
        self._tell()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self) -> None:
        for on_ready in tuple(self._on_ready):
            on_ready()


async def _not_now() -> Decision:
    return Declined(permanent=False)
