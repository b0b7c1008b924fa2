"""What travels sealed in a job of ours: the prompt to the device, the outcome back to the site."""

from dataclasses import dataclass
from time import time

from bench.peer_relay.party import Party
from bench.prompts import answer_to
from relay_service.client.envelope import Direction, EnvelopeRefused, open_envelope, seal
from relay_service.client.payloads import (
    CanceledOutcome,
    GeneratePayload,
    OkOutcome,
    PayloadError,
    RunMetadata,
    dump_outcome,
    dump_payload,
    parse_outcome,
    parse_payload,
)
from relay_service.client.wire import envelope_from_proto, envelope_to_proto
from relay_service.core.identity import PublicIdentity
from sealwork.relay.v1 import job_pb2

_ENVELOPE_LIFE_MS = 86_400_000
_RAN = RunMetadata("bench", "http", duration_ms=0, stop="end", stop_reported=True)
_CANCELED = dump_outcome(CanceledOutcome(), RunMetadata("bench", "http", duration_ms=0))


def now_ms() -> int:
    """Wall time in epoch milliseconds."""
    return int(time() * 1000)


@dataclass(frozen=True, slots=True)
class Legs:
    """Seals and opens both legs between one site and one device."""

    site: Party
    device: Party

    def payload(self, job_id: str, prompt: str, device: PublicIdentity) -> job_pb2.SealedEnvelope:
        """The site's half: a prompt sealed to the device that the relay says has claimed the job."""
        return _sealed(self.site, device, job_id, "payload", dump_payload(GeneratePayload(prompt)))

    def answer(self, job_id: str, payload: job_pb2.SealedEnvelope) -> job_pb2.SealedEnvelope:
        """The device's half: opens a payload, answers its prompt, seals the answer.

        Raises:
            EnvelopeRefused: the payload is not the site's, not for this device, or of another job.
        """
        asked = parse_payload("llm.generate", _opened(self.device, self.site, job_id, "payload", payload))
        assert isinstance(asked, GeneratePayload)
        outcome = dump_outcome(OkOutcome(answer_to(asked.prompt)), _RAN)
        return _sealed(self.device, self.site.keys.public, job_id, "result", outcome)

    def canceled(self, job_id: str) -> job_pb2.SealedEnvelope:
        """The device's word that it has stopped, sealed to the site."""
        return _sealed(self.device, self.site.keys.public, job_id, "result", _CANCELED)

    def is_right(
        self,
        job_id: str,
        prompt: str,
        disposition: job_pb2.Disposition.ValueType,
        result: job_pb2.SealedEnvelope,
    ) -> bool:
        """Whether a result opens, is the device's own, and answers the prompt."""
        try:
            outcome, _ran = parse_outcome(_opened(self.site, self.device, job_id, "result", result))
        except (EnvelopeRefused, PayloadError):
            return False
        went_well = disposition == job_pb2.DISPOSITION_OK and isinstance(outcome, OkOutcome)
        return went_well and outcome == OkOutcome(answer_to(prompt))


def _sealed(
    sender: Party, recipient: PublicIdentity, job_id: str, direction: Direction, plaintext: str
) -> job_pb2.SealedEnvelope:
    envelope = seal(
        keys=sender.keys,
        recipient=recipient,
        job_id=job_id,
        direction=direction,
        plaintext=plaintext,
        deadline_at_ms=now_ms() + _ENVELOPE_LIFE_MS,
    )
    return envelope_to_proto(envelope)


def _opened(
    recipient: Party, sender: Party, job_id: str, direction: Direction, message: job_pb2.SealedEnvelope
) -> str:
    envelope = envelope_from_proto(message)
    assert envelope is not None
    return open_envelope(
        envelope,
        keys=recipient.keys,
        sender=sender.keys.public,
        job_id=job_id,
        direction=direction,
        now_ms=now_ms(),
    )
