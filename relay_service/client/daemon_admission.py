"""What a device takes on: decided here, whatever the relay has granted."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from relay_service.client.backends.base import METERED_IDS, SUBSCRIPTION_IDS, RunLimits
from relay_service.client.daemon_config import Limits
from relay_service.client.daemon_jobs import HeldJob
from relay_service.client.grant_check import GrantCheck
from relay_service.client.ledger import Charge, Ledger
from relay_service.client.payloads import SizeClass, size_class
from relay_service.client.pins import SitePins
from relay_service.client.wire import SIZE_CLASSES, milliseconds_of
from relay_service.core.model import Audience, Capability, WithheldKind
from sealwork.relay.v1 import job_pb2
from service_common.clocks import Clock

logger = logging.getLogger("sealwork.client")

_ORDER: Final[Sequence[SizeClass]] = ("small", "medium", "large")
_UNBOUNDED: Final = job_pb2.SIZE_CLASS_UNBOUNDED


class Decision(StrEnum):
    """What to do with a grant."""

    ACCEPT = "accept"
    REFUSE = "refuse"
    UNKNOWN_SITE = "unknown-site"


@dataclass(frozen=True, slots=True)
class Terms:
    """Under which terms a job is run.

    Attributes:
        capability: What runs it.
        limits: What the run may cost.
        own: Whether it is work of this device's owner.
        charge: What is counted against other people's budget; None for the owner's own.
        text_length: UTF-16 units of the payload's text.
    """

    capability: Capability
    limits: RunLimits
    own: bool
    charge: Charge | None
    text_length: int


class Admission:
    """The owner's rules: which sites, which kinds, for whom, how much.

    Attributes:
        matrix: What is offered, and to whom in truth: what `offered` made of what was asked for.
    """

    def __init__(
        self,
        pins: SitePins,
        kinds: Collection[str],
        matrix: Sequence[Capability],
        *,
        owner: str | None,
        limits: Limits,
        ledger: Ledger,
        check: GrantCheck | None,
        clock: Clock,
    ) -> None:
        """Decide by these.

        Args:
            pins: The sites that are served.
            kinds: The kinds that can be handled.
            matrix: What is to be offered, and to whom.
            owner: Whose device this is; None when the device has not been told. It then takes only jobs of
                the audience `private` for its owner's own.
            limits: What work may cost.
            ledger: Knows what was done for others.
            check: Judges grants. Without it nothing proves that the owner admits somebody else, so nobody
                else is served.
            clock: Tells deadlines.
        """
        self._pins = pins
        self._kinds = kinds
        self._owner = owner
        self._limits = limits
        self._ledger = ledger
        self._check = check
        self._clock = clock
        self.matrix = self.offered(matrix)

    def offered(self, matrix: Sequence[Capability]) -> tuple[Capability, ...]:
        """Return the rows with the scope that they have in truth: a wider one would bring refusals alone."""
        return tuple(
            row if self._may_be_shared(row) else replace(row, offer_scope=Audience.PRIVATE) for row in matrix
        )

    def withheld(self, kinds: Sequence[WithheldKind]) -> tuple[WithheldKind, ...]:
        """Return the kinds that are held back, likewise with the scopes that they would have in truth."""
        if self._check is not None:
            return tuple(kinds)
        return tuple(
            replace(kind, claimants=tuple((service, Audience.PRIVATE) for service, _ in kind.claimants))
            for kind in kinds
        )

    def capability_for(self, job: HeldJob) -> Capability | None:
        """Return what would run a job. A grant names the service; without one there is one a kind."""
        service = None if self._check is None or job.signed is None else job.signed.service
        return next(
            (row for row in self.matrix if row.kind == job.stub.kind and service in (None, row.service)), None
        )

    def decide(self, job: HeldJob) -> Decision:
        """Decide about a grant, before its payload is there."""
        stub = job.stub
        if self._pins.get(stub.site) is None:
            return Decision.UNKNOWN_SITE
        capability = self.capability_for(job)
        if stub.kind not in self._kinds or capability is None:
            return _refuse(stub, "this kind is not offered")
        own = self._is_own(stub)
        # Before any grant is looked at: nobody's signature opens to strangers what is private.
        if not own and (
            capability.offer_scope is not Audience.TEAM or stub.audience != job_pb2.AUDIENCE_TEAM
        ):
            return _refuse(stub, "this service is its owner's alone")
        if self._check is not None:
            grant = self._check.judge(stub, job.signed)
            if isinstance(grant, str):
                return _refuse(stub, grant)
            job.grant = grant
        if not own and not self._has_budget(capability.service):
            return _refuse(stub, "enough was done for others")
        return Decision.ACCEPT

    def terms(self, job: HeldJob, text_length: int) -> Terms | None:
        """Return the terms for a job whose payload is there; None when it must not run.

        Args:
            job: The job.
            text_length: UTF-16 units of the payload's text.
        """
        stub, capability = job.stub, self.capability_for(job)
        if capability is None or _exceeds(stub.size_class, text_length):
            _refuse(stub, "its payload is not what was announced")
            return None
        own = self._is_own(stub)
        limits = self._limits.own if own else self._limits_for_others(capability.service, text_length)
        if limits is None:
            _refuse(stub, "it asks for more than others get here")
            return None
        left = (milliseconds_of(stub.deadline_time) - self._clock.now_ms()) / 1000
        limits = replace(limits, wall_clock_seconds=max(0.0, min(limits.wall_clock_seconds, left)))
        charge = None if own else Charge(capability.service, text_length + limits.max_output_bytes)
        return Terms(capability, limits, own, charge, text_length)

    def _is_own(self, stub: job_pb2.JobStub) -> bool:
        # A private job is routed to its owner's devices alone, which says who that is.
        return stub.owner == self._owner if self._owner else stub.audience == job_pb2.AUDIENCE_PRIVATE

    def _may_be_shared(self, row: Capability) -> bool:
        if self._check is None or row.backend_id in SUBSCRIPTION_IDS:
            return False
        return row.backend_id not in METERED_IDS or row.service in self._limits.ceilings

    def _has_budget(self, service: str) -> bool:
        ceiling = self._limits.ceilings.get(service)
        return (
            self._ledger.others_within_hour < self._limits.others_per_hour
            and self._ledger.others_within_day < self._limits.others_per_day
            and (ceiling is None or self._ledger.characters_within_day(service) < ceiling)
        )

    def _limits_for_others(self, service: str, text_length: int) -> RunLimits | None:
        limits, ceiling = self._limits.others, self._limits.ceilings.get(service)
        if text_length > self._limits.others_payload_characters or not self._has_budget(service):
            return None
        if ceiling is None:
            return limits
        # A byte holds no more than a character, so the ceiling stops the answer that would pass it.
        left = ceiling - self._ledger.characters_within_day(service) - text_length
        return replace(limits, max_output_bytes=min(limits.max_output_bytes, left)) if left > 0 else None


def _exceeds(announced: job_pb2.SizeClass.ValueType, text_length: int) -> bool:
    if announced == _UNBOUNDED:
        return False
    known = {number: name for name, number in SIZE_CLASSES.items()}.get(announced, "small")
    return _ORDER.index(size_class(text_length)) > _ORDER.index(known)


def _refuse(stub: job_pb2.JobStub, why: str) -> Decision:
    logger.warning("job %s of %s is refused: %s", stub.id, stub.owner, why)
    return Decision.REFUSE
