"""Between protobuf messages and the vocabulary of the core. No rules here, only shapes."""

from collections.abc import Iterable, Sequence

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from relay_service.core.identity import PublicIdentity
from relay_service.core.model import (
    Audience,
    Capability,
    Claim,
    Direction,
    Disposition,
    GrantedJob,
    JobEnd,
    JobState,
    JobStub,
    LeaseEnd,
    LeaseRef,
    ReleaseReason,
    RequeueCause,
    RoutedJob,
    SealedEnvelope,
    SizeClass,
    Verdict,
    VerdictState,
    WithheldKind,
)
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2

AUDIENCES = {
    Audience.PRIVATE: job_pb2.AUDIENCE_PRIVATE,
    Audience.TEAM: job_pb2.AUDIENCE_TEAM,
}
SIZE_CLASSES = {
    SizeClass.SMALL: job_pb2.SIZE_CLASS_SMALL,
    SizeClass.MEDIUM: job_pb2.SIZE_CLASS_MEDIUM,
    SizeClass.LARGE: job_pb2.SIZE_CLASS_LARGE,
    SizeClass.UNBOUNDED: job_pb2.SIZE_CLASS_UNBOUNDED,
}
JOB_STATES = {
    JobState.QUEUED: job_pb2.JOB_STATE_QUEUED,
    JobState.AUTHORISING: job_pb2.JOB_STATE_QUEUED,
    JobState.AWAITING_PAYLOAD: job_pb2.JOB_STATE_AWAITING_PAYLOAD,
    JobState.READY: job_pb2.JOB_STATE_READY,
    JobState.RUNNING: job_pb2.JOB_STATE_RUNNING,
    JobState.DONE: job_pb2.JOB_STATE_DONE,
}
DIRECTIONS = {
    Direction.PAYLOAD: job_pb2.DIRECTION_PAYLOAD,
    Direction.RESULT: job_pb2.DIRECTION_RESULT,
}
DISPOSITIONS = {
    Disposition.OK: job_pb2.DISPOSITION_OK,
    Disposition.ERROR: job_pb2.DISPOSITION_ERROR,
    Disposition.CANCELED: job_pb2.DISPOSITION_CANCELED,
}
RELEASE_REASONS = {
    ReleaseReason.SHUTDOWN: daemon_plane_pb2.RELEASE_REASON_SHUTDOWN,
    ReleaseReason.PAUSE: daemon_plane_pb2.RELEASE_REASON_PAUSE,
    ReleaseReason.REVOKED: daemon_plane_pb2.RELEASE_REASON_REVOKED,
    ReleaseReason.BACKEND_DOWN: daemon_plane_pb2.RELEASE_REASON_BACKEND_DOWN,
    ReleaseReason.REFUSED: daemon_plane_pb2.RELEASE_REASON_REFUSED,
    ReleaseReason.BAD_ENVELOPE: daemon_plane_pb2.RELEASE_REASON_BAD_ENVELOPE,
}
BACKEND_CLASSES = {
    "http": job_pb2.BACKEND_CLASS_HTTP,
    "process": job_pb2.BACKEND_CLASS_PROCESS,
}
LEASE_STATES = {
    VerdictState.ACTIVE: job_pb2.LEASE_STATE_ACTIVE,
    VerdictState.CANCEL_REQUESTED: job_pb2.LEASE_STATE_CANCEL_REQUESTED,
    VerdictState.LOST: job_pb2.LEASE_STATE_LOST,
    VerdictState.COMPLETED: job_pb2.LEASE_STATE_COMPLETED,
}
LEASE_ENDS = {
    LeaseEnd.EXPIRED: job_pb2.LEASE_END_REASON_EXPIRED,
    LeaseEnd.WINDOW_LAPSED: job_pb2.LEASE_END_REASON_WINDOW_LAPSED,
    LeaseEnd.DEADLINE_PASSED: job_pb2.LEASE_END_REASON_DEADLINE_PASSED,
    LeaseEnd.RELEASED: job_pb2.LEASE_END_REASON_RELEASED,
    LeaseEnd.CANCELLED: job_pb2.LEASE_END_REASON_CANCELLED,
}
JOB_ENDS = {
    JobEnd.EXPIRED: site_plane_pb2.JOB_END_REASON_EXPIRED,
    JobEnd.EVICTED_UNSEALED: site_plane_pb2.JOB_END_REASON_EVICTED_UNSEALED,
    JobEnd.CANCELLED: site_plane_pb2.JOB_END_REASON_CANCELLED,
    JobEnd.RESULT_DROPPED: site_plane_pb2.JOB_END_REASON_RESULT_DROPPED,
}
REQUEUE_CAUSES = {
    RequeueCause.WINDOW_LAPSED: site_plane_pb2.REQUEUE_REASON_WINDOW_LAPSED,
    RequeueCause.LEASE_LAPSED: site_plane_pb2.REQUEUE_REASON_LEASE_LAPSED,
    RequeueCause.RELEASED: site_plane_pb2.REQUEUE_REASON_RELEASED,
    RequeueCause.REFUSED: site_plane_pb2.REQUEUE_REASON_REFUSED,
    RequeueCause.BAD_ENVELOPE: site_plane_pb2.REQUEUE_REASON_BAD_ENVELOPE,
}
AUDIENCE_OF = {number: audience for audience, number in AUDIENCES.items()}
SIZE_CLASS_OF = {number: size_class for size_class, number in SIZE_CLASSES.items()}
DIRECTION_OF = {number: direction for direction, number in DIRECTIONS.items()}
DISPOSITION_OF = {number: disposition for disposition, number in DISPOSITIONS.items()}
RELEASE_REASON_OF = {number: reason for reason, number in RELEASE_REASONS.items()}
BACKEND_CLASS_OF = {number: name for name, number in BACKEND_CLASSES.items()}


def timestamp_of(milliseconds: int) -> Timestamp:
    """An instant in epoch ms as a Timestamp."""
    stamp = Timestamp()
    set_instant(stamp, milliseconds)
    return stamp


def set_instant(stamp: Timestamp, milliseconds: int) -> None:
    """Writes an instant in epoch ms into a Timestamp.

    A message that is given to the constructor of another one is copied into it, which costs several times
    what its fields cost when they are written in place.
    """
    stamp.seconds = milliseconds // 1000
    stamp.nanos = milliseconds % 1000 * 1_000_000


def milliseconds_of(stamp: Timestamp) -> int:
    """A Timestamp as epoch ms, fractions of a millisecond cut off."""
    return stamp.seconds * 1000 + stamp.nanos // 1_000_000


def duration_of(milliseconds: int) -> Duration:
    """A span in ms as a Duration; negative spans become zero."""
    span = Duration()
    set_span(span, milliseconds)
    return span


def set_span(span: Duration, milliseconds: int) -> None:
    """Writes a span in ms into a Duration, in place like an instant; negative spans become zero."""
    span.seconds = max(0, milliseconds) // 1000
    span.nanos = max(0, milliseconds) % 1000 * 1_000_000


def milliseconds_of_duration(span: Duration) -> int:
    """A Duration as ms, fractions of a millisecond cut off."""
    return span.seconds * 1000 + span.nanos // 1_000_000


def identity_to_proto(identity: PublicIdentity) -> job_pb2.PublicIdentity:
    """A public identity as its message."""
    return job_pb2.PublicIdentity(
        identity=identity.identity,
        encryption=identity.encryption,
        encryption_signature=identity.encryption_signature,
    )


def identity_from_proto(message: job_pb2.PublicIdentity) -> PublicIdentity:
    """A message as a public identity, unverified."""
    return PublicIdentity(message.identity, message.encryption, message.encryption_signature)


def stub_to_proto(stub: JobStub) -> job_pb2.JobStub:
    """A stub as its message."""
    message = job_pb2.JobStub(
        id=stub.id,
        kind=stub.kind,
        owner=stub.owner,
        site=stub.site,
        audience=AUDIENCES[stub.audience],
        purpose=stub.purpose,
        size_class=SIZE_CLASSES[stub.size_class],
        streaming=stub.streaming,
    )
    set_instant(message.deadline_time, stub.deadline_at_ms)
    return message


def stub_from_proto(message: job_pb2.JobStub) -> JobStub:
    """A checked message as a stub; KeyError for an enum value nobody checked."""
    return JobStub(
        id=message.id,
        kind=message.kind,
        owner=message.owner,
        site=message.site,
        audience=AUDIENCE_OF[message.audience],
        size_class=SIZE_CLASS_OF[message.size_class],
        streaming=message.streaming,
        deadline_at_ms=milliseconds_of(message.deadline_time),
        purpose=message.purpose if message.HasField("purpose") else None,
    )


def envelope_to_proto(envelope: SealedEnvelope) -> job_pb2.SealedEnvelope:
    """An envelope as its message."""
    message = job_pb2.SealedEnvelope(
        ciphertext=envelope.ciphertext,
        recipient_key_id=envelope.recipient_key_id,
        sender_key_id=envelope.sender_key_id,
        direction=DIRECTIONS[envelope.direction],
    )
    set_instant(message.deadline_time, envelope.deadline_at_ms)
    return message


def envelope_from_proto(message: job_pb2.SealedEnvelope) -> SealedEnvelope:
    """A checked message as an envelope; KeyError for an enum value nobody checked."""
    return SealedEnvelope(
        ciphertext=message.ciphertext,
        recipient_key_id=message.recipient_key_id,
        sender_key_id=message.sender_key_id,
        direction=DIRECTION_OF[message.direction],
        deadline_at_ms=milliseconds_of(message.deadline_time),
    )


def lease_ref_to_proto(lease: LeaseRef) -> job_pb2.LeaseRef:
    """A lease's name as its message."""
    return job_pb2.LeaseRef(job_id=lease.job_id, lease_id=lease.lease_id)


def lease_ref_from_proto(message: job_pb2.LeaseRef) -> LeaseRef:
    """A message as a lease's name."""
    return LeaseRef(message.job_id, message.lease_id)


def lease_refs_from_proto(messages: Iterable[job_pb2.LeaseRef]) -> list[LeaseRef]:
    """Messages as lease names, in order."""
    return [LeaseRef(message.job_id, message.lease_id) for message in messages]


def verdict_to_proto(verdict: Verdict) -> job_pb2.LeaseVerdict:
    """A verdict as its message."""
    message = job_pb2.LeaseVerdict(lease=lease_ref_to_proto(verdict.lease), state=LEASE_STATES[verdict.state])
    if verdict.state in (VerdictState.ACTIVE, VerdictState.CANCEL_REQUESTED):
        set_span(message.remaining, verdict.remaining_ms)
    if verdict.end is not None:
        message.end_reason = LEASE_ENDS[verdict.end]
    return message


def granted_to_proto(granted: GrantedJob, now_ms: int) -> daemon_plane_pb2.Granted:
    """A granted job as its message, the lease counted from `now_ms` (store clock)."""
    message = daemon_plane_pb2.Granted(stub=stub_to_proto(granted.stub))
    if granted.signed_grant is not None:
        message.grant.MergeFromString(granted.signed_grant)
    message.lease.id = granted.lease_id
    set_span(message.lease.remaining, granted.lease_expires_at_ms - now_ms)
    set_instant(message.lease.expire_time, granted.lease_expires_at_ms)
    return message


def capability_to_proto(capability: Capability) -> job_pb2.DeviceCapability:
    """A row of the matrix as its message."""
    return job_pb2.DeviceCapability(
        kind=capability.kind,
        service=capability.service,
        backend_id=capability.backend_id,
        backend_class=BACKEND_CLASSES[capability.backend_class],
        model=capability.model,
        known_models=capability.known_models,
        offer_scope=AUDIENCES[capability.offer_scope],
    )


def capability_from_proto(message: job_pb2.DeviceCapability) -> Capability:
    """A checked message as a row of the matrix."""
    return Capability(
        kind=message.kind,
        service=message.service,
        backend_id=message.backend_id,
        backend_class=BACKEND_CLASS_OF[message.backend_class],
        model=message.model,
        offer_scope=AUDIENCE_OF[message.offer_scope],
        known_models=tuple(message.known_models),
    )


def withheld_from_proto(message: job_pb2.WithheldKind) -> WithheldKind:
    """A checked message as a withheld kind."""
    return WithheldKind(
        message.kind,
        tuple((row.service, AUDIENCE_OF[row.offer_scope]) for row in message.claimants),
    )


def matrix_from_proto(messages: Sequence[job_pb2.DeviceCapability]) -> tuple[Capability, ...]:
    """Checked messages as a matrix."""
    return tuple(capability_from_proto(message) for message in messages)


def result_to_proto(
    job: RoutedJob, claim: Claim, envelope: SealedEnvelope
) -> site_plane_pb2.GetResultResponse:
    """A finished job's result with who made it."""
    return site_plane_pb2.GetResultResponse(
        envelope=envelope_to_proto(envelope),
        disposition=DISPOSITIONS[job.disposition or Disposition.ERROR],
        runner_id=claim.runner_id,
        device=identity_to_proto(claim.device),
        lease_id=claim.lease_id,
        runner_owner=claim.owner,
    )
