"""Signed grants: a control plane's word that one job may run on one owner's device, with one service.

The statement that is signed is a compact JSON array, spelled as JavaScript spells it, so that control planes
and devices in any language agree on its bytes.
"""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

from relay_service.client.compact_json import dump_array
from relay_service.client.signed_body import is_instant
from relay_service.client.wire import milliseconds_of, timestamp_of
from sealwork.relay.v1 import job_pb2
from service_common.signing import Signer
from service_common.verification import verify_signature

ACCEPTED_MS: Final = 120_000
"""How long after its issue a grant is accepted. It bounds the acceptance, not the work."""
AHEAD_MS: Final = 30_000
"""How far ahead of this clock a grant may have been issued."""

_DOMAIN: Final = "byollm/v1/grant"
_NANOS_PER_MS: Final = 1_000_000


class GrantRefusal(StrEnum):
    """Why a grant is not accepted, in the order in which the reasons are looked for."""

    MALFORMED = "malformed"
    WRONG_OWNER = "wrong-owner"
    WRONG_JOB = "wrong-job"
    FROM_THE_FUTURE = "from-the-future"
    EXPIRED = "expired"
    BAD_SIGNATURE = "bad-signature"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a control plane grants.

    Attributes:
        grant_id: Never used for two grants; a device accepts it once.
        job_id: The job.
        site: Key id of the job's site, as its stub names it.
        user: The person whose work it is.
        owner: The person whose device may do it.
        purpose: The site's purpose; `default` when the stub names none.
        kind: Kind of work.
        service: The device owner's name for the back end to use.
        issued_at_ms: When it was signed, epoch milliseconds.
    """

    grant_id: str
    job_id: str
    site: str
    user: str
    owner: str
    purpose: str
    kind: str
    service: str
    issued_at_ms: int


def statement(grant: Grant) -> bytes:
    """Return the bytes that a control plane signs: a domain, then the fields ordered by their wire names.

    Raises:
        ValueError: A text has a lone surrogate, or the instant is out of range.
    """
    if not is_instant(grant.issued_at_ms):
        raise ValueError("a grant is issued at a positive instant in milliseconds")
    return dump_array(
        [
            _DOMAIN,
            grant.grant_id,
            grant.issued_at_ms,
            grant.job_id,
            grant.kind,
            grant.owner,
            grant.purpose,
            grant.service,
            grant.site,
            grant.user,
        ]
    )


def sign_grant(grant: Grant, signer: Signer) -> job_pb2.SignedGrant:
    """Return the message of a grant, signed by the control plane.

    Raises:
        ValueError: A text is empty or has a lone surrogate, or the instant is out of range.
    """
    if not all(getattr(grant, field.name) for field in fields(grant)):
        raise ValueError("every field of a grant has a value")
    return job_pb2.SignedGrant(
        grant_id=grant.grant_id,
        job_id=grant.job_id,
        site=grant.site,
        user=grant.user,
        owner=grant.owner,
        purpose=grant.purpose,
        kind=grant.kind,
        service=grant.service,
        issue_time=timestamp_of(grant.issued_at_ms),
        signature=signer.sign(statement(grant)),
    )


def grant_of(message: job_pb2.SignedGrant) -> Grant | None:
    """Return what a message grants, nothing of it verified; None when it is no whole grant.

    An instant that is no whole number of milliseconds is not covered by the signature as it stands.
    """
    if message.issue_time.nanos % _NANOS_PER_MS:
        return None
    grant = Grant(
        grant_id=message.grant_id,
        job_id=message.job_id,
        site=message.site,
        user=message.user,
        owner=message.owner,
        purpose=message.purpose,
        kind=message.kind,
        service=message.service,
        issued_at_ms=milliseconds_of(message.issue_time),
    )
    whole = all(getattr(grant, field.name) for field in fields(grant))
    return grant if whole and is_instant(grant.issued_at_ms) else None


def verify_grant(
    message: job_pb2.SignedGrant,
    *,
    control_plane: bytes,
    owner: str,
    job_id: str,
    now_ms: int,
) -> Grant | GrantRefusal:
    """Return the grant if it is the control plane's, about this job and this owner's device, and recent.

    That it is used once and fits its job in every other way is for the caller to see to.

    Args:
        message: As it was received.
        control_plane: The pinned raw Ed25519 key, 32 bytes.
        owner: The owner of this device.
        job_id: The job that it came with.
        now_ms: Now by the control plane's time as well as it is known here, epoch milliseconds. Both ends of
            the window are inclusive.
        verify: Checks a signature: key, message, signature.
    """
    grant = grant_of(message)
    if grant is None:
        return GrantRefusal.MALFORMED
    refusal = _refusal(grant, owner, job_id, now_ms)
    if refusal is not None:
        return refusal
    # Last, because it is the only check that costs anything.
    if not verify_signature(control_plane, statement(grant), message.signature):
        return GrantRefusal.BAD_SIGNATURE
    return grant


def _refusal(grant: Grant, owner: str, job_id: str, now_ms: int) -> GrantRefusal | None:
    if grant.owner != owner:
        return GrantRefusal.WRONG_OWNER
    if grant.job_id != job_id:
        return GrantRefusal.WRONG_JOB
    if grant.issued_at_ms > now_ms + AHEAD_MS:
        return GrantRefusal.FROM_THE_FUTURE
    if now_ms - grant.issued_at_ms > ACCEPTED_MS:
        return GrantRefusal.EXPIRED
    return None
