"""Bounds of what callers send, as far as the core does not check them; every fault is named at once."""

from collections.abc import Iterable, Sequence

from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from durable_service.core.errors import DomainError
from durable_service.core.identifiers import checked_identifier
from durable_service.core.limits import (
    DEFAULT_PAGE,
    MAXIMUM_PAGE,
    MAXIMUM_SAFE_INTEGER,
    REPEAT_ID_CHARACTERS,
)
from durable_service.planes.convert import milliseconds_of, milliseconds_of_duration
from sealwork.durable.v1 import lease_pb2, task_pb2
from service_common.errors import FieldViolation, invalid_argument

MOST_WAIT_MS = 10_000
MOST_LEASES = 500
MOST_DRIVERS = 64
LONGEST_DELAY_MS = 365 * 86_400_000

_NANOS = 1_000_000_000


class Checks:
    """Collects the faults of one request; `raise_faults` ends the checking."""

    __slots__ = ("_faults",)

    def __init__(self) -> None:
        self._faults: list[FieldViolation] = []

    def fault(self, field: str, description: str) -> None:
        self._faults.append(FieldViolation(field, description))

    def raise_faults(self) -> None:
        """Raises FIELD_INVALID with every fault noted, if any."""
        if self._faults:
            raise invalid_argument(self._faults)

    def identifier(self, field: str, text: str) -> None:
        """An identifier of the core."""
        try:
            checked_identifier(text, field)
        except DomainError as error:
            self.fault(field, error.violations[0].description)

    def label(self, field: str, text: str) -> None:
        """1 to 128 characters, none of them a control character."""
        if len(text) > REPEAT_ID_CHARACTERS:
            self.fault(field, f"must have 1 to {REPEAT_ID_CHARACTERS} characters")
        else:
            self.identifier(field, text)

    def count(self, field: str, number: int, least: int, most: int) -> None:
        """A length or number within bounds."""
        if not least <= number <= most:
            self.fault(field, f"must be {least} to {most}")

    def known(self, field: str, value: int, values: Iterable[int]) -> None:
        """One of the named values of an enum."""
        if value not in values:
            self.fault(field, "must be one of the named values")

    def span(self, field: str, span: Duration, least_ms: int, most_ms: int) -> None:
        """A duration within bounds, both inclusive."""
        signs_differ = span.seconds * span.nanos < 0
        milliseconds = milliseconds_of_duration(span)
        if signs_differ or abs(span.nanos) >= _NANOS or not least_ms <= milliseconds <= most_ms:
            self.fault(field, f"must be {least_ms / 1000:g} s to {most_ms / 1000:g} s")

    def wait(self, field: str, span: Duration) -> None:
        """How long a call may wait."""
        self.span(field, span, 0, MOST_WAIT_MS)

    def instant(self, field: str, stamp: Timestamp, *, whole_ms: bool = False) -> None:
        """An instant that fits epoch milliseconds."""
        if not 0 <= stamp.nanos < _NANOS or not 0 <= milliseconds_of(stamp) <= MAXIMUM_SAFE_INTEGER:
            self.fault(field, "must be an instant after 1970")
        elif whole_ms and stamp.nanos % 1_000_000:
            self.fault(field, "must be a whole number of milliseconds")

    def page(self, size: int) -> int:
        """The size of a page, with the default filled in."""
        self.count("page_size", size, 0, MAXIMUM_PAGE)
        return size or DEFAULT_PAGE

    def lease(self, field: str, lease: lease_pb2.LeaseRef) -> None:
        """One lease, as its holder names it."""
        self.identifier(f"{field}.task_id", lease.task_id)
        self.label(f"{field}.worker_id", lease.worker_id)
        self.count(f"{field}.fence", lease.fence, 1, MAXIMUM_SAFE_INTEGER)

    def leases(self, field: str, leases: Sequence[lease_pb2.LeaseRef], least: int = 1) -> None:
        """At most 500 leases, each named once."""
        self.count(field, len(leases), least, MOST_LEASES)
        named: set[tuple[str, str, int]] = set()
        for index, lease in enumerate(leases[:MOST_LEASES]):
            self.lease(f"{field}[{index}]", lease)
            name = (lease.task_id, lease.worker_id, lease.fence)
            if name in named:
                self.fault(f"{field}[{index}]", "is named twice")
            named.add(name)

    def drivers(self, field: str, drivers: Sequence[task_pb2.DriverRef], least: int) -> None:
        """At most 64 drivers."""
        self.count(field, len(drivers), least, MOST_DRIVERS)
        for index, driver in enumerate(drivers[:MOST_DRIVERS]):
            self.identifier(f"{field}[{index}].id", driver.id)
            self.count(f"{field}[{index}].version", driver.version, 1, MAXIMUM_SAFE_INTEGER)

    def mask(self, field: str, mask: FieldMask) -> None:
        """Fields of a task, without paths into them."""
        known = task_pb2.Task.DESCRIPTOR.fields_by_name
        for index, path in enumerate(mask.paths):
            if path not in known:
                self.fault(f"{field}.paths[{index}]", "is not a field of Task")


def check_lease(lease: lease_pb2.LeaseRef) -> None:
    """Raises FIELD_INVALID unless the lease of a request is well-formed."""
    checks = Checks()
    checks.lease("lease", lease)
    checks.raise_faults()


def check_task_id(task_id: str) -> None:
    """Raises FIELD_INVALID unless it can be the id of a task."""
    checks = Checks()
    checks.identifier("task_id", task_id)
    checks.raise_faults()
