"""Between the messages of the protocol and the values that the client works with."""

from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from relay_service.client.envelope import Direction, Envelope
from relay_service.client.errors import JobEndReason
from relay_service.client.outcomes import Disposition
from relay_service.client.payloads import SizeClass
from relay_service.core.identity import PublicIdentity
from relay_service.core.model import Audience, Capability
from sealwork.relay.v1 import job_pb2, site_plane_pb2

AUDIENCES: Final = {
    Audience.PRIVATE: job_pb2.AUDIENCE_PRIVATE,
    Audience.TEAM: job_pb2.AUDIENCE_TEAM,
}
SIZE_CLASSES: Final[dict[SizeClass, job_pb2.SizeClass.ValueType]] = {
    "small": job_pb2.SIZE_CLASS_SMALL,
    "medium": job_pb2.SIZE_CLASS_MEDIUM,
    "large": job_pb2.SIZE_CLASS_LARGE,
}
DISPOSITIONS: Final[dict[Disposition, job_pb2.Disposition.ValueType]] = {
    "ok": job_pb2.DISPOSITION_OK,
    "error": job_pb2.DISPOSITION_ERROR,
    "canceled": job_pb2.DISPOSITION_CANCELED,
}

_DIRECTIONS: Final[dict[Direction, job_pb2.Direction.ValueType]] = {
    "payload": job_pb2.DIRECTION_PAYLOAD,
    "result": job_pb2.DIRECTION_RESULT,
}
_DIRECTION_OF: Final = {number: direction for direction, number in _DIRECTIONS.items()}
_DISPOSITION_OF: Final = {number: disposition for disposition, number in DISPOSITIONS.items()}
_BACKEND_CLASSES: Final = {
    "http": job_pb2.BACKEND_CLASS_HTTP,
    "process": job_pb2.BACKEND_CLASS_PROCESS,
}
_JOB_ENDS: Final = {
    site_plane_pb2.JOB_END_REASON_EXPIRED: JobEndReason.EXPIRED,
    site_plane_pb2.JOB_END_REASON_EVICTED_UNSEALED: JobEndReason.EVICTED_UNSEALED,
    site_plane_pb2.JOB_END_REASON_CANCELLED: JobEndReason.CANCELLED,
    site_plane_pb2.JOB_END_REASON_RESULT_DROPPED: JobEndReason.RESULT_DROPPED,
}


def timestamp_of(milliseconds: int) -> Timestamp:
    """Return an instant in epoch milliseconds as a Timestamp."""
    return Timestamp(seconds=milliseconds // 1000, nanos=milliseconds % 1000 * 1_000_000)


def milliseconds_of(stamp: Timestamp) -> int:
    """Return a Timestamp in epoch milliseconds, fractions cut off."""
    return stamp.seconds * 1000 + stamp.nanos // 1_000_000


def identity_to_proto(identity: PublicIdentity) -> job_pb2.PublicIdentity:
    """Return the message of a public identity."""
    return job_pb2.PublicIdentity(
        identity=identity.identity,
        encryption=identity.encryption,
        encryption_signature=identity.encryption_signature,
    )


def identity_from_proto(message: job_pb2.PublicIdentity) -> PublicIdentity:
    """Return the public identity of a message; nothing about it is verified."""
    return PublicIdentity(message.identity, message.encryption, message.encryption_signature)


def envelope_to_proto(envelope: Envelope) -> job_pb2.SealedEnvelope:
    """Return the message of an envelope."""
    return job_pb2.SealedEnvelope(
        ciphertext=envelope.ciphertext,
        recipient_key_id=envelope.recipient_key_id,
        sender_key_id=envelope.sender_key_id,
        direction=_DIRECTIONS[envelope.direction],
        deadline_time=timestamp_of(envelope.deadline_at_ms),
    )


def envelope_from_proto(message: job_pb2.SealedEnvelope) -> Envelope | None:
    """Return the envelope of a message; None when its direction is none that is known here."""
    direction = _DIRECTION_OF.get(message.direction)
    if direction is None:
        return None
    return Envelope(
        ciphertext=message.ciphertext,
        recipient_key_id=message.recipient_key_id,
        sender_key_id=message.sender_key_id,
        direction=direction,
        deadline_at_ms=milliseconds_of(message.deadline_time),
    )


def capability_to_proto(capability: Capability) -> job_pb2.DeviceCapability:
    """Return the message of a row of the matrix."""
    return job_pb2.DeviceCapability(
        kind=capability.kind,
        service=capability.service,
        backend_id=capability.backend_id,
        backend_class=_BACKEND_CLASSES[capability.backend_class],
        model=capability.model,
        known_models=capability.known_models,
        offer_scope=AUDIENCES[capability.offer_scope],
    )


def disposition_of(number: job_pb2.Disposition.ValueType) -> str:
    """Return the word for a disposition."""
    return _DISPOSITION_OF.get(number, "unknown")


def job_end_of(message: site_plane_pb2.JobEnded) -> JobEndReason:
    """Return why a job ended."""
    return _JOB_ENDS.get(message.reason, JobEndReason.UNKNOWN)
