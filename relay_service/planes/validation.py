"""Bounds of what callers send; every fault of a request is named at once."""

import unicodedata
from collections.abc import Iterable, Sequence

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from relay_service.core.limits import (
    ENVELOPE_BYTES,
    IDENTIFIER_CHARACTERS,
    LEASES_PER_CALL,
    MATRIX_ROWS,
    MAXIMUM_INSTANT_MS,
)
from relay_service.planes.convert import (
    AUDIENCE_OF,
    BACKEND_CLASS_OF,
    DIRECTION_OF,
    SIZE_CLASS_OF,
    milliseconds_of,
    milliseconds_of_duration,
)
from sealwork.relay.v1 import job_pb2
from service_common.errors import FieldViolation, ServiceError, invalid_argument

_NANOS = 1_000_000_000


class Checks:
    """Collects the faults of one request; `raise_faults` ends the checking."""

    __slots__ = ("_faults",)

    def __init__(self) -> None:
        self._faults: list[FieldViolation] = []

    def fault(self, field: str, description: str) -> None:
        """Notes one fault."""
        self._faults.append(FieldViolation(field, description))

    def raise_faults(self) -> None:
        """Raises FIELD_INVALID with every fault noted, if any."""
        if self._faults:
            raise invalid_argument(self._faults)

    def identifier(self, field: str, value: str) -> None:
        """1 to 128 characters, none of them a control character."""
        if not 0 < len(value) <= IDENTIFIER_CHARACTERS:
            self.fault(field, f"must have 1 to {IDENTIFIER_CHARACTERS} characters")
        # The quick test first: nearly every id is plain ASCII.
        elif not value.isprintable() and any(unicodedata.category(char) == "Cc" for char in value):
            self.fault(field, "must not have control characters")

    def label(self, field: str, value: str) -> None:
        """Text that an operator may be shown: an identifier, or nothing."""
        if value:
            self.identifier(field, value)

    def count(self, field: str, number: int, least: int, most: int) -> None:
        """A length or number within bounds."""
        if not least <= number <= most:
            self.fault(field, f"must be {least} to {most}")

    def instant(self, field: str, stamp: Timestamp, *, whole_ms: bool = False) -> None:
        """A positive instant that fits epoch milliseconds."""
        if not 0 <= stamp.nanos < _NANOS or not 0 < milliseconds_of(stamp) <= MAXIMUM_INSTANT_MS:
            self.fault(field, "must be an instant after 1970")
        elif whole_ms and stamp.nanos % 1_000_000:
            self.fault(field, "must be a whole number of milliseconds")

    def span(self, field: str, span: Duration, least_ms: int, most_ms: int) -> None:
        """A duration within bounds, both inclusive."""
        signs_differ = span.seconds * span.nanos < 0
        milliseconds = milliseconds_of_duration(span)
        if signs_differ or abs(span.nanos) >= _NANOS or not least_ms <= milliseconds <= most_ms:
            self.fault(field, f"must be {least_ms / 1000:g} s to {most_ms / 1000:g} s")

    def leases(self, field: str, leases: Sequence[job_pb2.LeaseRef]) -> None:
        """1 to 500 leases, each named once."""
        self.count(field, len(leases), 1, LEASES_PER_CALL)
        self.lease_names(field, leases[:LEASES_PER_CALL])

    def lease_names(self, field: str, leases: Iterable[job_pb2.LeaseRef]) -> None:
        """Leases whose ids are well-formed, each named once."""
        named: set[tuple[str, str]] = set()
        for index, lease in enumerate(leases):
            self.lease(f"{field}[{index}]", lease)
            named_before = len(named)
            named.add((lease.job_id, lease.lease_id))
            if len(named) == named_before:
                self.fault(f"{field}[{index}]", "is named twice")

    def lease(self, field: str, lease: job_pb2.LeaseRef) -> None:
        """One lease."""
        self.identifier(f"{field}.job_id", lease.job_id)
        self.identifier(f"{field}.lease_id", lease.lease_id)

    def stub(self, field: str, stub: job_pb2.JobStub) -> None:
        """A stub."""
        self.identifier(f"{field}.id", stub.id)
        self.identifier(f"{field}.kind", stub.kind)
        self.identifier(f"{field}.owner", stub.owner)
        self.identifier(f"{field}.site", stub.site)
        if stub.HasField("purpose"):
            self.identifier(f"{field}.purpose", stub.purpose)
        if stub.audience not in AUDIENCE_OF:
            self.fault(f"{field}.audience", "must be AUDIENCE_PRIVATE or AUDIENCE_TEAM")
        if stub.size_class not in SIZE_CLASS_OF:
            self.fault(f"{field}.size_class", "must be one of the named size classes")
        self.instant(f"{field}.deadline_time", stub.deadline_time)

    def envelope(self, field: str, envelope: job_pb2.SealedEnvelope) -> None:
        """An envelope's header; its size is told apart, as ENVELOPE_TOO_LARGE."""
        if not envelope.ciphertext:
            self.fault(f"{field}.ciphertext", "must not be empty")
        self.identifier(f"{field}.recipient_key_id", envelope.recipient_key_id)
        self.identifier(f"{field}.sender_key_id", envelope.sender_key_id)
        if envelope.direction not in DIRECTION_OF:
            self.fault(f"{field}.direction", "must be DIRECTION_PAYLOAD or DIRECTION_RESULT")
        self.instant(f"{field}.deadline_time", envelope.deadline_time, whole_ms=True)

    def matrix(self, field: str, rows: Sequence[job_pb2.DeviceCapability]) -> None:
        """A capability matrix; empty is legal."""
        self.count(field, len(rows), 0, MATRIX_ROWS)
        for index, row in enumerate(rows[:MATRIX_ROWS]):
            self._row(f"{field}[{index}]", row)

    def withheld(self, field: str, kinds: Sequence[job_pb2.WithheldKind]) -> None:
        """Kinds that a device holds back."""
        self.count(field, len(kinds), 0, MATRIX_ROWS)
        for index, kind in enumerate(kinds[:MATRIX_ROWS]):
            name = f"{field}[{index}]"
            self.identifier(f"{name}.kind", kind.kind)
            self.count(f"{name}.claimants", len(kind.claimants), 2, MATRIX_ROWS)
            for place, claimant in enumerate(kind.claimants[:MATRIX_ROWS]):
                self.identifier(f"{name}.claimants[{place}].service", claimant.service)
                self._audience(f"{name}.claimants[{place}].offer_scope", claimant.offer_scope)

    def _row(self, field: str, row: job_pb2.DeviceCapability) -> None:
        self.identifier(f"{field}.kind", row.kind)
        self.identifier(f"{field}.service", row.service)
        self.identifier(f"{field}.backend_id", row.backend_id)
        self.identifier(f"{field}.model", row.model)
        if row.backend_class not in BACKEND_CLASS_OF:
            self.fault(f"{field}.backend_class", "must be BACKEND_CLASS_HTTP or BACKEND_CLASS_PROCESS")
        self._audience(f"{field}.offer_scope", row.offer_scope)
        self.count(f"{field}.known_models", len(row.known_models), 0, MATRIX_ROWS)
        for index, model in enumerate(row.known_models[:MATRIX_ROWS]):
            self.identifier(f"{field}.known_models[{index}]", model)

    def _audience(self, field: str, audience: int) -> None:
        if audience not in AUDIENCE_OF:
            self.fault(field, "must be AUDIENCE_PRIVATE or AUDIENCE_TEAM")


def check_size(envelope: job_pb2.SealedEnvelope) -> None:
    """Raises ENVELOPE_TOO_LARGE, which no client may take for a reason to retry."""
    size = len(envelope.ciphertext)
    if size > ENVELOPE_BYTES:
        error = invalid_argument(
            [FieldViolation("envelope.ciphertext", f"must have at most {ENVELOPE_BYTES} bytes")],
            "ENVELOPE_TOO_LARGE",
        )
        raise ServiceError(
            error.code,
            error.reason,
            error.message,
            metadata={"size_bytes": str(size), "limit_bytes": str(ENVELOPE_BYTES)},
            violations=error.violations,
        )
