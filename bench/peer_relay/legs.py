"""What travels sealed in a job: the prompt to the device, the outcome back to the site."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from bench.peer_relay.callers import now_ms
from bench.peer_relay.party import Party
from bench.prompts import answer_to
from relay_service.client.envelope import Direction, Envelope, EnvelopeRefused, open_envelope, seal
from relay_service.core.identity import PublicIdentity

_ENVELOPE_MAX_AGE_MS = 86_400_000
_RAN = {"model": "bench", "backendClass": "http", "durationMs": 0, "stop": "end", "stopReported": True}


@dataclass(frozen=True, slots=True)
class Legs:
    """Seals and opens both legs between one site and one device."""

    site: Party
    device: Party

    def payload(self, job_id: str, prompt: str, device: Mapping[str, str]) -> dict[str, Any]:
        """The site's half: a prompt sealed to the device that the relay says has claimed the job."""
        recipient = PublicIdentity.from_json(device)
        return _sealed(self.site, recipient, job_id, "payload", {"prompt": prompt})

    def answer(self, job_id: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The device's half: opens a payload, answers its prompt, seals the answer.

        Raises:
            EnvelopeRefused: the payload is not the site's, not for this device, or of another job.
        """
        prompt = _opened(self.device, self.site, job_id, "payload", payload)["prompt"]
        return self.outcome(job_id, {"outcome": "ok", "text": answer_to(prompt)})

    def outcome(self, job_id: str, outcome: Mapping[str, Any]) -> dict[str, Any]:
        """An outcome of any kind, sealed to the site."""
        plaintext = {"outcome": outcome, "ran": _RAN}
        return _sealed(self.device, self.site.keys.public, job_id, "result", plaintext)

    def is_right(self, job_id: str, prompt: str, finished: Mapping[str, Any]) -> bool:
        """Whether a collected result opens, is the device's own, and answers the prompt."""
        try:
            outcome = _opened(self.site, self.device, job_id, "result", finished["envelope"])["outcome"]
        except EnvelopeRefused:
            return False
        went_well = finished["disposition"] == outcome["outcome"] == "ok"
        return bool(went_well and outcome["text"] == answer_to(prompt))


def _sealed(
    sender: Party, recipient: PublicIdentity, job_id: str, direction: Direction, plaintext: Mapping[str, Any]
) -> dict[str, Any]:
    envelope = seal(
        keys=sender.keys,
        recipient=recipient,
        job_id=job_id,
        direction=direction,
        plaintext=orjson.dumps(plaintext).decode(),
        deadline_at_ms=now_ms() + _ENVELOPE_MAX_AGE_MS,
    )
    return envelope.to_json()


def _opened(
    recipient: Party, sender: Party, job_id: str, direction: Direction, envelope: Mapping[str, Any]
) -> Any:
    plaintext = open_envelope(
        Envelope.from_json(envelope),
        keys=recipient.keys,
        sender=sender.keys.public,
        job_id=job_id,
        direction=direction,
        now_ms=now_ms(),
    )
    return orjson.loads(plaintext)
