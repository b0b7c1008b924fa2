"""A site's envelopes: payloads that it seals to a device, and results of a device that it opens."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from relay_service.client.envelope import EnvelopeRefused, open_envelope, seal
from relay_service.client.errors import JobFailedError, ResultRefusedError
from relay_service.client.keys import Keys
from relay_service.client.outcomes import Disposition, OkOutcome, Outcome, RunMetadata, parse_outcome
from relay_service.client.plaintext_fields import PayloadError
from relay_service.client.wire import (
    DISPOSITIONS,
    envelope_from_proto,
    envelope_to_proto,
    identity_from_proto,
)
from relay_service.core.identity import PublicIdentity, verify_binding
from sealwork.relay.v1 import job_pb2, site_plane_pb2
from service_common.clocks import Clock

logger = logging.getLogger("sealwork.client")

Trust = Callable[[PublicIdentity, str], bool]
"""Tells whether a site seals to this device, given its identity and its runner id."""

# How long an envelope may lie about; not the deadline of the job.
_ENVELOPE_LIFE_MS: Final = 86_400_000


class UntrustedDevice(Exception):  # noqa: N818 - a decision of the site, not a failure
    """The device that claimed the job is not one to seal to."""


class ResultMessage(Protocol):
    """What a pushed and a fetched result have in common."""

    @property
    def envelope(self) -> job_pb2.SealedEnvelope: ...

    @property
    def disposition(self) -> job_pb2.Disposition.ValueType: ...

    @property
    def runner_id(self) -> str: ...

    @property
    def device(self) -> job_pb2.PublicIdentity: ...

    @property
    def lease_id(self) -> str: ...

    @property
    def runner_owner(self) -> str: ...


@dataclass(frozen=True, slots=True)
class JobResult:
    """What came of a job, opened and verified.

    Attributes:
        job_id: The job.
        outcome: What the device says: an answer, an error, or that it stopped.
        ran: What ran it.
        runner_id: The device.
        runner_owner: Whose device it is, as the relay says.
        device_key_id: Key id of the device; its signature is on the outcome.
        lease_id: The grant under which it was made.
    """

    job_id: str
    outcome: Outcome = field(repr=False)
    ran: RunMetadata
    runner_id: str
    runner_owner: str
    device_key_id: str
    lease_id: str

    @property
    def disposition(self) -> Disposition:
        """One of ok, error, canceled."""
        return self.outcome.disposition

    @property
    def text(self) -> str:
        """The answer.

        Raises:
            JobFailedError: There is none: the device reports an error or a cancel.
        """
        if isinstance(self.outcome, OkOutcome):
            return self.outcome.text
        raise JobFailedError(self.job_id, self.outcome)


class SiteEnvelopes:
    """Seals and opens for one site."""

    def __init__(
        self, keys: Keys, clock: Clock, *, earlier_keys: Sequence[Keys] = (), trust: Trust | None = None
    ) -> None:
        """Use these keys.

        Args:
            keys: The site's present keys: stubs name them and payloads are signed with them.
            clock: Tells when an envelope has expired.
            earlier_keys: Keys that results of older jobs may still be sealed to.
            trust: Asked before anything is sealed to a device; without it every device is trusted that the
                relay names and whose identity is consistent.
        """
        self._keys = {each.key_id: each for each in (*earlier_keys, keys)}
        self._clock = clock
        self._trust = trust

    def seal(
        self, stub: job_pb2.JobStub, plaintext: str, notice: site_plane_pb2.PleaseSeal
    ) -> site_plane_pb2.SealPayloadRequest:
        """Return the payload of a job, sealed to the device that claimed it.

        Raises:
            UntrustedDevice: It is not one to seal to.
            SealError: The plaintext cannot be sealed.
        """
        device = self._checked_device(notice.device, notice.runner_id)
        envelope = seal(
            keys=self._keys[stub.site],
            recipient=device,
            job_id=stub.id,
            direction="payload",
            plaintext=plaintext,
            deadline_at_ms=self._clock.now_ms() + _ENVELOPE_LIFE_MS,
        )
        return site_plane_pb2.SealPayloadRequest(
            job_id=stub.id, lease_id=notice.lease_id, envelope=envelope_to_proto(envelope)
        )

    def open(
        self, stub: job_pb2.JobStub, result: ResultMessage, sealed_to: Mapping[str, PublicIdentity]
    ) -> JobResult:
        """Return the result of a job, once everything about it has been checked.

        Args:
            stub: The job.
            result: As it was received.
            sealed_to: By lease, the device that the payload was sealed to here.

        Raises:
            ResultRefusedError: It must not be used.
        """
        device = self._result_device(stub.id, result, sealed_to)
        envelope = envelope_from_proto(result.envelope)
        keys = self._keys.get(result.envelope.recipient_key_id)
        if envelope is None or keys is None:
            raise ResultRefusedError(stub.id, "it is not sealed to this site")
        try:
            text = open_envelope(
                envelope,
                keys=keys,
                sender=device,
                job_id=stub.id,
                direction="result",
                now_ms=self._clock.now_ms(),
            )
            outcome, ran = parse_outcome(text)
        except EnvelopeRefused as error:
            raise ResultRefusedError(stub.id, f"its envelope is {error.reason.value}", error.reason) from None
        except PayloadError as error:
            raise ResultRefusedError(stub.id, f"it breaks the format: {error}") from None
        # In the clear it is only a hint; whoever changed it on the way must not get away with it.
        if DISPOSITIONS[outcome.disposition] != result.disposition:
            raise ResultRefusedError(stub.id, "its disposition is not what was announced")
        return JobResult(
            job_id=stub.id,
            outcome=outcome,
            ran=ran,
            runner_id=result.runner_id,
            runner_owner=result.runner_owner,
            device_key_id=device.key_id,
            lease_id=result.lease_id,
        )

    def _result_device(
        self, job_id: str, result: ResultMessage, sealed_to: Mapping[str, PublicIdentity]
    ) -> PublicIdentity:
        device = identity_from_proto(result.device)
        expected = sealed_to.get(result.lease_id)
        if expected is not None:
            if device != expected:
                raise ResultRefusedError(job_id, "its device is not the one that the payload was sealed to")
            return device
        try:
            # The payload was sealed by an earlier process, or by none: the device may have given up before.
            return self._checked_device(result.device, result.runner_id)
        except UntrustedDevice:
            raise ResultRefusedError(job_id, "its device is not trusted") from None

    def _checked_device(self, message: job_pb2.PublicIdentity, runner_id: str) -> PublicIdentity:
        device = identity_from_proto(message)
        if not verify_binding(device):
            logger.warning("the identity of device %s does not verify", runner_id)
            raise UntrustedDevice(runner_id)
        if self._trust is not None and not self._trust(device, runner_id):
            logger.warning("device %s with key id %s is not trusted", runner_id, device.key_id)
            raise UntrustedDevice(runner_id)
        return device
