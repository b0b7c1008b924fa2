"""How a refusal of the store reads on the wire, and the planes' own refusals."""

import grpc

from relay_service.core.model import Refusal
from relay_service.policy import SlotVerdict
from sealwork.relay.v1 import job_pb2
from service_common.errors import QuotaViolation, ServiceError

_CODES = {
    Refusal.NOT_FOUND: (
        grpc.StatusCode.NOT_FOUND,
        "JOB_NOT_FOUND",
        "there is no such job for this caller",
    ),
    Refusal.NOT_HOLDER: (
        grpc.StatusCode.PERMISSION_DENIED,
        "NOT_LEASE_HOLDER",
        "another device holds this job; stop working on it",
    ),
    Refusal.STALE_LEASE: (
        grpc.StatusCode.FAILED_PRECONDITION,
        "STALE_LEASE",
        "this lease has ended or was replaced; abandon the work and do not report it",
    ),
    Refusal.TERMINAL: (
        grpc.StatusCode.FAILED_PRECONDITION,
        "JOB_FINISHED",
        "the job is finished",
    ),
    Refusal.TOO_LATE: (
        grpc.StatusCode.FAILED_PRECONDITION,
        "NOT_AWAITING_PAYLOAD",
        "the job does not wait for a payload now; wait for the next please_seal",
    ),
    Refusal.CANCELLED: (
        grpc.StatusCode.FAILED_PRECONDITION,
        "JOB_CANCELLED",
        "the site has withdrawn this job; stop, then report canceled or release the lease",
    ),
    Refusal.WRONG_RECIPIENT: (
        grpc.StatusCode.INVALID_ARGUMENT,
        "ENVELOPE_MISDIRECTED",
        "the envelope is not sealed to the device that holds this lease",
    ),
}


def refused(refusal: Refusal, metadata: dict[str, str] | None = None) -> ServiceError:
    """A store's refusal as the error of a call."""
    if refusal is Refusal.NOT_READY:
        return ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION,
            "PAYLOAD_NOT_SEALED",
            "the site has not sealed yet; wait for payload_ready or ask again",
            retry_after_ms=500,
        )
    if refusal is Refusal.QUOTA_EXCEEDED:
        return ServiceError(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "QUOTA_EXCEEDED",
            "this site has its most unfinished jobs; wait for some to end",
            retry_after_ms=5_000,
        )
    code, reason, message = _CODES[refusal]
    return ServiceError(code, reason, message, metadata=metadata or {})


_SLOT_REFUSALS = {
    SlotVerdict.NOT_DECLARED: (
        "PURPOSE_NOT_DECLARED",
        "the site has not declared this purpose; declare it, then publish again",
    ),
    SlotVerdict.UNMAPPED: (
        "SLOT_UNSATISFIABLE",
        "this person has chosen nothing for this purpose and waiting is useless; ask the person",
    ),
    SlotVerdict.WAITING: (
        "SLOT_WAITING",
        "nothing can answer this purpose now; try again much later",
    ),
}


def slot_refused(verdict: SlotVerdict) -> ServiceError:
    """The policy's verdict on a need; how long to wait is nothing that a site may learn."""
    reason, message = _SLOT_REFUSALS[verdict]
    return ServiceError(grpc.StatusCode.FAILED_PRECONDITION, reason, message)


def policy_unavailable(retry_after_ms: int) -> ServiceError:
    """The operator's policy did not answer."""
    return ServiceError(
        grpc.StatusCode.UNAVAILABLE,
        "POLICY_UNAVAILABLE",
        "the operator's policy did not answer, so nothing was published; repeat the request",
        retry_after_ms=retry_after_ms,
    )


def stub_site_mismatch() -> ServiceError:
    """The stub names a key that is not the caller's."""
    return ServiceError(
        grpc.StatusCode.PERMISSION_DENIED,
        "STUB_SITE_MISMATCH",
        "stub.site must be this site's current key id, or a retiring one within its window",
    )


def misdirected(message: str) -> ServiceError:
    """The envelope's header does not fit the grant."""
    return ServiceError(grpc.StatusCode.INVALID_ARGUMENT, "ENVELOPE_MISDIRECTED", message)


def envelope_expired() -> ServiceError:
    """The envelope's own deadline has passed."""
    return ServiceError(
        grpc.StatusCode.INVALID_ARGUMENT,
        "ENVELOPE_EXPIRED",
        "the envelope's deadline has passed; check the clock and seal again",
    )


def result_not_ready() -> ServiceError:
    """The job has no result yet."""
    return ServiceError(
        grpc.StatusCode.FAILED_PRECONDITION,
        "RESULT_NOT_READY",
        "the job is not done yet; wait for result_ready",
        retry_after_ms=1_000,
    )


def body_too_large(limit: int) -> ServiceError:
    """The body does not fit a call on the session."""
    return ServiceError(
        grpc.StatusCode.FAILED_PRECONDITION,
        "BODY_TOO_LARGE_FOR_SESSION",
        "the body is over the limit for a call on the session; use the unary call",
        metadata={"limit_bytes": str(limit)},
    )


def refuse_large_body(envelope: job_pb2.SealedEnvelope, limit: int) -> None:
    """Raises BODY_TOO_LARGE_FOR_SESSION for an envelope that has to go by unary call."""
    if len(envelope.ciphertext) > limit:
        raise body_too_large(limit)


def page_token_invalid() -> ServiceError:
    """The page token is not one of ours."""
    return ServiceError(
        grpc.StatusCode.INVALID_ARGUMENT,
        "PAGE_TOKEN_INVALID",
        "page_token is not one that this method returned; start from the first page",
    )


def device_revoked() -> ServiceError:
    """This device is cut off."""
    return ServiceError(
        grpc.StatusCode.PERMISSION_DENIED,
        "DEVICE_REVOKED",
        "this device has been revoked; stop for good, or pair again with new keys",
    )


def daemon_below_floor(floor: str) -> ServiceError:
    """The daemon is older than the operator accepts."""
    return ServiceError(
        grpc.StatusCode.FAILED_PRECONDITION,
        "DAEMON_BELOW_FLOOR",
        f"this daemon is older than {floor}, the least version accepted here; upgrade it",
        metadata={"floor": floor},
    )


def not_implemented(message: str) -> ServiceError:
    """The method is not served here."""
    return ServiceError(grpc.StatusCode.UNIMPLEMENTED, "NOT_IMPLEMENTED", message)


def pairing_not_offered() -> ServiceError:
    """No pairing by code here."""
    return ServiceError(
        grpc.StatusCode.UNIMPLEMENTED,
        "PAIRING_NOT_OFFERED",
        "this relay offers no pairing by code; ask its operator to add the device to the projection",
    )


def too_many_pairings(most: int, retry_after_ms: int) -> ServiceError:
    """As many devices wait as may."""
    return _pairings_at_capacity(
        "as many pairings wait as may; try again",
        QuotaViolation("pairings that wait", f"at most {most}"),
        retry_after_ms,
    )


def too_many_pairings_of_an_address(per_minute: int, retry_after_ms: int) -> ServiceError:
    """This peer has started its share of pairings."""
    return _pairings_at_capacity(
        "this address has started as many pairings as it may for now; try again",
        QuotaViolation("pairings that one address starts", f"at most {per_minute} a minute"),
        retry_after_ms,
    )


def _pairings_at_capacity(message: str, quota: QuotaViolation, retry_after_ms: int) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "PAIRINGS_AT_CAPACITY",
        message,
        retry_after_ms=retry_after_ms,
        quota=quota,
    )


def pairing_not_found() -> ServiceError:
    """No such code waits; expired and unknown are not told apart."""
    return ServiceError(
        grpc.StatusCode.NOT_FOUND,
        "PAIRING_NOT_FOUND",
        "no pairing with this code waits; a code lives for 10 minutes: list the pairings, or start again",
    )


def pairing_decided() -> ServiceError:
    """Somebody else's word on this pairing came first."""
    return ServiceError(
        grpc.StatusCode.FAILED_PRECONDITION,
        "PAIRING_DECIDED",
        "this pairing was decided otherwise before; read the device list",
    )


def too_many_pairing_streams() -> ServiceError:
    """More streams wait for one pairing than one device needs."""
    return ServiceError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "TOO_MANY_SESSIONS",
        "too many streams wait for this pairing; end some, or poll",
        retry_after_ms=5_000,
    )


def identity_inconsistent() -> ServiceError:
    """The identity key has not signed the encryption key."""
    return ServiceError(
        grpc.StatusCode.INVALID_ARGUMENT,
        "IDENTITY_INCONSISTENT",
        "the identity key has not signed the encryption key; generate the keys anew",
    )


def pairing_clock_skew(now_ms: int, allowed_ms: int) -> ServiceError:
    """The proof is not of now."""
    return ServiceError(
        grpc.StatusCode.UNAUTHENTICATED,
        "CLOCK_SKEW",
        "the proof was signed too long ago or in the future: set the clock, then sign anew",
        metadata={"server_time_ms": str(now_ms), "max_skew_ms": str(allowed_ms)},
    )


def pairing_not_proven() -> ServiceError:
    """The signature is not that of the pairing's identity."""
    return ServiceError(
        grpc.StatusCode.UNAUTHENTICATED,
        "BAD_SIGNATURE",
        "the signature is not one of the identity that is to be paired",
    )


def pairing_replayed() -> ServiceError:
    """The proof was used before."""
    return ServiceError(
        grpc.StatusCode.UNAUTHENTICATED,
        "REPLAYED",
        "this nonce was used before: sign every attempt anew, with a fresh nonce",
    )
