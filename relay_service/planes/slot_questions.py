"""What the policy says of the stubs of one call, each need asked about once and all of them together."""

import asyncio
from collections.abc import Iterable

from relay_service.planes import refusals
from relay_service.policy import DEFAULT_PURPOSE, Policy, PolicyUnavailable, Slot, SlotVerdict
from sealwork.relay.v1 import job_pb2
from service_common.errors import ServiceError

_RETRY_AFTER_MS = 1_000


class SlotQuestions:
    """Asks when the first answer is wanted; a call that is refused before asks nothing.

    The person's consent plays no part: what a site learns is the policy's word and nothing about
    who is known here.
    """

    def __init__(self, policy: Policy, site_id: str, stubs: Iterable[job_pb2.JobStub]) -> None:
        self._policy = policy
        self._site_id = site_id
        self._slots = {self._slot(stub) for stub in stubs}
        self._refusals: dict[Slot, ServiceError | None] | None = None

    async def refusal(self, stub: job_pb2.JobStub) -> ServiceError | None:
        """Why the stub cannot be published; None when it can."""
        if self._refusals is None:
            slots = list(self._slots)
            found = await asyncio.gather(*(self._ask(slot) for slot in slots))
            self._refusals = dict(zip(slots, found, strict=True))
        return self._refusals[self._slot(stub)]

    async def _ask(self, slot: Slot) -> ServiceError | None:
        try:
            verdict = await self._policy.check_slot(slot)
        except PolicyUnavailable as error:
            return refusals.policy_unavailable(max(_RETRY_AFTER_MS, round(error.wait_seconds * 1000)))
        return None if verdict is SlotVerdict.OK else refusals.slot_refused(verdict)

    def _slot(self, stub: job_pb2.JobStub) -> Slot:
        purpose = stub.purpose if stub.HasField("purpose") else DEFAULT_PURPOSE
        return Slot(self._site_id, stub.owner, purpose, stub.kind)
