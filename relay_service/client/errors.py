"""What a client of the relay can run into, each with what to do about it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import grpc

from relay_service.client.outcomes import CanceledOutcome, ErrorOutcome
from relay_service.client.refusals import Refusal
from service_common.client_errors import CallError

_ADVICE: Final[Mapping[str, str]] = {
    "BAD_SIGNATURE": "check that the relay's projection has this id with the key id of this key file",
    "BODY_TOO_LARGE_FOR_SESSION": "use the unary call",
    "CLOCK_SKEW": "set this machine's clock",
    "DAEMON_BELOW_FLOOR": "upgrade this daemon to the version that the relay asks for",
    "DEVICE_ID_CONFLICT": "stop the other process that uses this runner id, or give each device its own",
    "DEVICE_REVOKED": "ask the relay's operator why; to come back, pair with new keys (--keys FILE)",
    "ENVELOPE_EXPIRED": "set this machine's clock",
    "ENVELOPE_MISDIRECTED": "seal to the device that was named in please_seal",
    "ENVELOPE_TOO_LARGE": "make the text shorter; an envelope holds 6 MiB",
    "FIELD_INVALID": "correct the named field",
    "HELLO_TIMEOUT": "check the network between here and the relay",
    "IDENTITY_INCONSISTENT": "generate the keys anew",
    "INTERNAL": "report the incident id to the relay's operator",
    "JOB_CANCELLED": "the job was withdrawn; nothing is left to do",
    "JOB_NOT_FOUND": "check the job id; a settled job is forgotten",
    "NOT_IMPLEMENTED": "this relay does not serve the method; upgrade it",
    "PAIRINGS_AT_CAPACITY": "wait a minute, then pair again",
    "PAIRING_NOT_OFFERED": "ask the relay's operator to add this device to the projection",
    "POLICY_UNAVAILABLE": "try again later",
    "PROTOCOL_VIOLATION": "this is a fault of the client software; report it",
    "PURPOSE_NOT_DECLARED": "the relay's operator keeps the list of a site's purposes",
    "QUOTA_EXCEEDED": "wait, or collect and acknowledge results first",
    "REPLAYED": "sign the request again with a fresh nonce",
    "SERVER_DRAINING": "try again; another server takes over",
    "SESSION_SUPERSEDED": "look for a second process that uses this runner id",
    "SLOT_UNSATISFIABLE": "another purpose may be answered, or the same once the person has chosen",
    "SLOT_WAITING": "nothing of what the person has chosen can answer now; try again later",
    "STORE_UNAVAILABLE": "try again later; the relay's operator sees it too",
    "STUB_SITE_MISMATCH": "use the keys that the relay's projection names for this site",
    "TOO_MANY_SESSIONS": "share one Site between the tasks of a process",
    "UNSIGNED_REQUEST": "this is a fault of the client software; report it",
    "UNSUPPORTED_PROTOCOL_VERSION": "upgrade whichever of client and relay is older",
}

_ADVICE_BY_CODE: Final[Mapping[grpc.StatusCode, str]] = {
    grpc.StatusCode.DEADLINE_EXCEEDED: "check that the address is that of a relay, and try again",
    grpc.StatusCode.UNAVAILABLE: "check the address, and that the relay is running",
    grpc.StatusCode.UNIMPLEMENTED: "check that the address is that of a relay",
    grpc.StatusCode.CANCELLED: "try again",
    grpc.StatusCode.PERMISSION_DENIED: "something between here and the relay refuses the call; check proxies",
    grpc.StatusCode.UNAUTHENTICATED: "something between here and the relay refuses the call; check proxies",
}


class RelayError(CallError):
    """The relay, or the way to it, refused a call."""

    advice_by_reason = _ADVICE
    advice_by_code = _ADVICE_BY_CODE


class JobEndReason(StrEnum):
    """Why no result of a job will come."""

    EXPIRED = "expired"
    EVICTED_UNSEALED = "evicted-unsealed"
    CANCELLED = "cancelled"
    RESULT_DROPPED = "result-dropped"
    UNKNOWN = "unknown"


_END_TEXTS: Final = {
    JobEndReason.EXPIRED: "its deadline passed before any device answered",
    JobEndReason.EVICTED_UNSEALED: "three devices in a row got no payload that they could use",
    JobEndReason.CANCELLED: "it was withdrawn",
    JobEndReason.RESULT_DROPPED: "its result was not collected in time",
    JobEndReason.UNKNOWN: "the relay gave a reason that this version does not know",
}


class JobEndedError(Exception):
    """The job ended without a result."""

    def __init__(self, job_id: str, reason: JobEndReason) -> None:
        """Tell why no result of `job_id` will come."""
        super().__init__(f"the job {job_id} ended without a result: {_END_TEXTS[reason]}")
        self.job_id = job_id
        self.reason = reason


class ResultRefusedError(Exception):
    """A result that must not be used. The text holds nothing of it.

    Attributes:
        job_id: The job.
        refusal: Why the envelope was not opened; None when it holds something else than was announced.
    """

    def __init__(self, job_id: str, message: str, refusal: Refusal | None = None) -> None:
        """Tell what is wrong with the result of `job_id`."""
        super().__init__(f"the result of job {job_id} was refused: {message}")
        self.job_id = job_id
        self.refusal = refusal


class SiteClosedError(Exception):
    """The site was closed before the job's end was known; enqueue it again by its id to take it up."""

    def __init__(self, job_id: str) -> None:
        """Tell that nobody here waits for `job_id` any more."""
        super().__init__(f"the site was closed before the end of job {job_id} was known")
        self.job_id = job_id


class JobAbandonedError(Exception):
    """The job was abandoned here while it went on at the relay; enqueue it again by its id to take it up."""

    def __init__(self, job_id: str) -> None:
        """Tell that nobody here waits for `job_id` any more."""
        super().__init__(f"the job {job_id} was abandoned before its end was known")
        self.job_id = job_id


class JobFailedError(Exception):
    """The device reports an outcome that has no answer.

    Attributes:
        job_id: The job.
        outcome: What it reports.
    """

    def __init__(self, job_id: str, outcome: ErrorOutcome | CanceledOutcome) -> None:
        """Tell what the device reports of `job_id`."""
        super().__init__(f"the job {job_id} has no answer: {_outcome_text(outcome)}")
        self.job_id = job_id
        self.outcome = outcome


def _outcome_text(outcome: ErrorOutcome | CanceledOutcome) -> str:
    if isinstance(outcome, CanceledOutcome):
        return "it was canceled"
    again = "; it may work when asked again" if outcome.retryable else ""
    return f"{outcome.code}: {outcome.message}{again}"
