"""A record with some of its fields changed, made cheaply, and the comparison of two."""

from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from durable_service.core.model import TaskRecord

__all__ = ["differs_in_lease_alone", "revise"]

_NAMES = tuple(field.name for field in fields(TaskRecord))
_all_but_the_lease = attrgetter(*(name for name in _NAMES if name != "lease"))


def differs_in_lease_alone(before: TaskRecord, after: TaskRecord) -> bool:
    """Whether nothing but the lease is another, or nothing at all."""
    return bool(_all_but_the_lease(before) == _all_but_the_lease(after))


if TYPE_CHECKING:
    # The type checker knows the fields of a record when it takes this for what it stands in for.
    from dataclasses import replace as revise
else:
    _read_all = attrgetter(*_NAMES)
    _WRITERS = {name: TaskRecord.__dict__[name].__set__ for name in _NAMES}
    _ALL_WRITERS = tuple(_WRITERS.values())

    def revise(record: TaskRecord, **changes: Any) -> TaskRecord:
        """Copies a record with the named fields changed.

        It does what `dataclasses.replace` does without going through a constructor of thirty arguments; a
        record is copied several times in one step.

        Raises:
            KeyError: no such field.
        """
        copy = object.__new__(TaskRecord)
        for write, value in zip(_ALL_WRITERS, _read_all(record), strict=True):
            write(copy, value)
        for name, value in changes.items():
            _WRITERS[name](copy, value)
        return copy
