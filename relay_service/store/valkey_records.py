"""Values of the model as they are kept on the server, and back."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from relay_service.core.identity import PublicIdentity, decode_base64url, encode_base64url
from relay_service.core.model import (
    Audience,
    Capability,
    Claim,
    Direction,
    Disposition,
    GrantedJob,
    JobEnd,
    JobKey,
    JobState,
    JobStub,
    Notice,
    NoticeKind,
    Presence,
    RequeueCause,
    RoutedJob,
    SealedEnvelope,
    SizeClass,
    WithheldKind,
)

Record = Mapping[str, Any]


class UnreadableError(Exception):
    """A stored value is not one that this release can read."""


def read(text: bytes) -> Record:
    """The fields of a stored value.

    Raises:
        UnreadableError: it is not an object.
    """
    try:
        record = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UnreadableError from error
    if not isinstance(record, dict):
        raise UnreadableError
    return record


@lru_cache(maxsize=4096)
def device_text(device: PublicIdentity) -> str:
    return ".".join(map(encode_base64url, (device.identity, device.encryption, device.encryption_signature)))


@lru_cache(maxsize=4096)
def device_from(text: str) -> PublicIdentity:
    """The keys of a device.

    Raises:
        UnreadableError: the text is not that of three keys.
    """
    try:
        identity, encryption, signature = map(decode_base64url, text.split("."))
    except ValueError as error:
        raise UnreadableError from error
    return PublicIdentity(identity, encryption, signature)


def stub_text(stub: JobStub) -> bytes:
    # Instants without a bound of their own go as text: the server's numbers lose digits in JSON.
    fields: dict[str, object] = {
        "id": stub.id,
        "kind": stub.kind,
        "owner": stub.owner,
        "site": stub.site,
        "audience": stub.audience.value,
        "size_class": stub.size_class.value,
        "streaming": stub.streaming,
        "deadline_at_ms": str(stub.deadline_at_ms),
    }
    if stub.purpose is not None:
        fields["purpose"] = stub.purpose
    return orjson.dumps(fields)


def header_text(envelope: SealedEnvelope) -> bytes:
    """An envelope without its ciphertext, whose size it names."""
    return orjson.dumps(
        {
            "recipient_key_id": envelope.recipient_key_id,
            "sender_key_id": envelope.sender_key_id,
            "direction": envelope.direction.value,
            "deadline_at_ms": str(envelope.deadline_at_ms),
            "bytes": len(envelope.ciphertext),
        }
    )


def envelope_from(header: Record, ciphertext: bytes) -> SealedEnvelope:
    return SealedEnvelope(
        ciphertext,
        header["recipient_key_id"],
        header["sender_key_id"],
        Direction(header["direction"]),
        int(header["deadline_at_ms"]),
    )


def job_from(
    site_id: str, record: Record, payload: bytes | None = None, result: bytes | None = None
) -> RoutedJob:
    """A job with the ciphertext that goes with it.

    Raises:
        UnreadableError: a field is missing or has a value that this release does not know.
    """
    try:
        return _job(site_id, record, payload, result)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableError from error


def granted_from(site_id: str, record: Record) -> GrantedJob:
    """A held job as its holder sees it.

    Raises:
        UnreadableError: as `job_from`.
    """
    try:
        claim = record["claim"]
        return GrantedJob(
            site_id,
            _stub(record["stub"]),
            claim["lease_id"],
            claim["lease_expires_at_ms"],
            record.get("awaiting_until_ms", 0),
            record["state"] == JobState.AUTHORISING.value,
            _signed_grant(claim),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableError from error


def grant_number(record: Record) -> int:
    """Its place in the order of all grants."""
    return int(record["claim"]["number"])


def notice_from(site_id: str, sequence: bytes, kind: bytes, job_id: bytes, source: bytes) -> Notice:
    """A row of an inbox from what it is derived from.

    Raises:
        UnreadableError: as `job_from`.
    """
    place = int(sequence)
    try:
        row = (str(place), place, JobKey(site_id, job_id.decode()), NoticeKind(kind.decode()))
        if row[3] is NoticeKind.JOB_ENDED:
            at, _, why = source.decode().partition(" ")
            return Notice(*row, int(at), end=JobEnd(why))
        return _notice_of_job(row, read(source))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableError from error


def presence_text(presence: Presence) -> bytes:
    return orjson.dumps(
        {
            "owner": presence.owner,
            "device": device_text(presence.device),
            "capabilities": [
                [
                    *(row.kind, row.service, row.backend_id, row.backend_class, row.model),
                    *(row.offer_scope.value, list(row.known_models)),
                ]
                for row in presence.capabilities
            ],
            "withheld": [
                [row.kind, [[service, scope.value] for service, scope in row.claimants]]
                for row in presence.withheld
            ],
        }
    )


def presence_from(runner_id: str, value: bytes) -> Presence:
    """What is known of a device.

    Raises:
        UnreadableError: as `job_from`.
    """
    seen_at, _, text = value.partition(b" ")
    record = read(text)
    try:
        return Presence(
            runner_id,
            record["owner"],
            device_from(record["device"]),
            tuple(_capability(row) for row in record["capabilities"]),
            tuple(
                WithheldKind(kind, tuple((service, Audience(scope)) for service, scope in claimants))
                for kind, claimants in record["withheld"]
            ),
            int(seen_at),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableError from error


def _capability(row: Sequence[Any]) -> Capability:
    kind, service, backend_id, backend_class, model, scope, models = row
    return Capability(kind, service, backend_id, backend_class, model, Audience(scope), tuple(models))


def _stub(fields: Record) -> JobStub:
    return JobStub(
        fields["id"],
        fields["kind"],
        fields["owner"],
        fields["site"],
        Audience(fields["audience"]),
        SizeClass(fields["size_class"]),
        fields["streaming"],
        int(fields["deadline_at_ms"]),
        fields.get("purpose"),
    )


def _claim(fields: Record | None) -> Claim | None:
    if fields is None:
        return None
    return Claim(
        fields["runner_id"],
        fields["owner"],
        device_from(fields["device"]),
        fields["lease_id"],
        fields["lease_expires_at_ms"],
        _signed_grant(fields),
    )


def _signed_grant(claim: Record) -> bytes | None:
    text = claim.get("signed_grant")
    return None if text is None else decode_base64url(text)


def _envelope(header: Record | None, ciphertext: bytes | None) -> SealedEnvelope | None:
    return None if header is None or ciphertext is None else envelope_from(header, ciphertext)


def _job(site_id: str, record: Record, payload: bytes | None, result: bytes | None) -> RoutedJob:
    stub = _stub(record["stub"])
    disposition = record.get("disposition")
    return RoutedJob(
        key=JobKey(site_id, stub.id),
        stub=stub,
        sequence=int(record["sequence"]),
        state=JobState(record["state"]),
        claim=_claim(record.get("claim")),
        awaiting_until_ms=record.get("awaiting_until_ms"),
        seal_attempts=record.get("seal_attempts", 0),
        attempts_before_seal=record.get("attempts_before_seal", 0),
        reoffer_to=record.get("reoffer_to"),
        sticky_until_ms=record.get("sticky_until_ms"),
        refused_by=tuple(record.get("refused_by", ())),
        retry_after_ms=tuple((runner, until) for runner, until in record.get("retry_after_ms", ())),
        cancelled=record.get("cancelled", False),
        cancel_acknowledged=record.get("cancel_acknowledged", False),
        payload=_envelope(record.get("payload"), payload),
        result=_envelope(record.get("result"), result),
        disposition=None if disposition is None else Disposition(disposition),
        retained_until_ms=record.get("retained_until_ms"),
    )


def _notice_of_job(row: tuple[str, int, JobKey, NoticeKind], record: Record) -> Notice:
    if row[3] is NoticeKind.JOB_REQUEUED:
        requeue = record["requeue"]
        cause = RequeueCause(requeue["cause"])
        return Notice(*row, requeue["at_ms"], requeue=cause, count=requeue["count"])
    at_ms, claim = record["outlook_at_ms"], _claim(record["claim"])
    if row[3] is NoticeKind.PLEASE_SEAL:
        return Notice(*row, at_ms, claim, record["awaiting_until_ms"])
    disposition, size = Disposition(record["disposition"]), record["result"]["bytes"]
    return Notice(*row, at_ms, claim, None, disposition, size)
