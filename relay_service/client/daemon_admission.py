"""What a device takes on: decided here, whatever the relay has granted."""

import logging
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from relay_service.client.backends.base import RunLimits
from relay_service.client.daemon_config import Limits
from relay_service.client.payloads import SizeClass, size_class
from relay_service.client.pins import SitePins
from relay_service.client.wire import SIZE_CLASSES, milliseconds_of
from relay_service.core.model import Audience, Capability
from sealwork.relay.v1 import job_pb2
from service_common.clocks import Clock

logger = logging.getLogger("sealwork.client")

_HOUR_SECONDS: Final = 3_600.0
_DAY_SECONDS: Final = 86_400.0
_ORDER: Final[Sequence[SizeClass]] = ("small", "medium", "large")
_UNBOUNDED: Final = job_pb2.SIZE_CLASS_UNBOUNDED


class Decision(StrEnum):
    """What to do with a grant."""

    ACCEPT = "accept"
    REFUSE = "refuse"
    UNKNOWN_SITE = "unknown-site"


@dataclass(frozen=True, slots=True)
class Terms:
    """Under which terms a job is run."""

    capability: Capability
    limits: RunLimits
    own: bool


class Admission:
    """The owner's rules: which sites, which kinds, for whom, how much."""

    def __init__(
        self,
        pins: SitePins,
        kinds: Collection[str],
        matrix: Sequence[Capability],
        *,
        owner: str | None,
        limits: Limits,
        clock: Clock,
    ) -> None:
        """Decide by these.

        Args:
            pins: The sites that are served.
            kinds: The kinds that can be handled.
            matrix: What is offered, and to whom.
            owner: Whose device this is; None when the device has not been told. It then takes only jobs of
                the audience `private` for its owner's own.
            limits: What work may cost.
            clock: Counts hours and days.
        """
        self._pins = pins
        self._kinds = kinds
        self._owner = owner
        self._limits = limits
        self._clock = clock
        self._others_begun: deque[float] = deque()
        self.matrix = tuple(matrix)

    def decide(self, stub: job_pb2.JobStub) -> Decision:
        """Decide about a grant, before its payload is there."""
        if self._pins.get(stub.site) is None:
            return Decision.UNKNOWN_SITE
        capability = self._capability_for(stub)
        if stub.kind not in self._kinds or capability is None:
            return _refuse(stub, "this kind is not offered")
        if not self._is_own(stub):
            if capability.offer_scope is not Audience.TEAM or stub.audience != job_pb2.AUDIENCE_TEAM:
                return _refuse(stub, "this service is its owner's alone")
            if not self._has_budget():
                return _refuse(stub, "enough was done for others")
        return Decision.ACCEPT

    def terms(self, stub: job_pb2.JobStub, text_length: int) -> Terms | None:
        """Return the terms for a job whose payload is there; None when it must not run.

        Args:
            stub: The job.
            text_length: UTF-16 units of the payload's text.
        """
        capability, own = self._capability_for(stub), self._is_own(stub)
        if capability is None or _exceeds(stub.size_class, text_length):
            _refuse(stub, "its payload is not what was announced")
            return None
        if not own:
            if text_length > self._limits.others_payload_characters or not self._has_budget():
                _refuse(stub, "it asks for more than others get here")
                return None
            self._others_begun.append(self._clock.monotonic())
        left = (milliseconds_of(stub.deadline_time) - self._clock.now_ms()) / 1000
        limits = self._limits.own if own else self._limits.others
        seconds = max(0.0, min(limits.wall_clock_seconds, left))
        return Terms(capability, replace(limits, wall_clock_seconds=seconds), own)

    def _capability_for(self, stub: job_pb2.JobStub) -> Capability | None:
        return next((row for row in self.matrix if row.kind == stub.kind), None)

    def _is_own(self, stub: job_pb2.JobStub) -> bool:
        # A private job is routed to its owner's devices alone, which says who that is.
        return stub.owner == self._owner if self._owner else stub.audience == job_pb2.AUDIENCE_PRIVATE

    def _has_budget(self) -> bool:
        now = self._clock.monotonic()
        while self._others_begun and self._others_begun[0] <= now - _DAY_SECONDS:
            self._others_begun.popleft()
        last_hour = sum(at > now - _HOUR_SECONDS for at in self._others_begun)
        within_hour = last_hour < self._limits.others_per_hour
        return within_hour and len(self._others_begun) < self._limits.others_per_day


def _exceeds(announced: job_pb2.SizeClass.ValueType, text_length: int) -> bool:
    if announced == _UNBOUNDED:
        return False
    known = {number: name for name, number in SIZE_CLASSES.items()}.get(announced, "small")
    return _ORDER.index(size_class(text_length)) > _ORDER.index(known)


def _refuse(stub: job_pb2.JobStub, why: str) -> Decision:
    logger.warning("job %s of %s is refused: %s", stub.id, stub.owner, why)
    return Decision.REFUSE
