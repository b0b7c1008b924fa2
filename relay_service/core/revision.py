"""A job with some of its fields changed, made cheaply."""

from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from relay_service.core.model import RoutedJob

__all__ = ["revise"]

if TYPE_CHECKING:
    # The type checker knows the fields of a job when it takes this for what it stands in for.
    from dataclasses import replace as revise
else:
    _NAMES = tuple(field.name for field in fields(RoutedJob))
    _read_all = attrgetter(*_NAMES)
    _WRITERS = {name: RoutedJob.__dict__[name].__set__ for name in _NAMES}
    _ALL_WRITERS = tuple(_WRITERS.values())

    def revise(job: RoutedJob, **changes: Any) -> RoutedJob:
        """Copies a job with the named fields changed.

        It does what `dataclasses.replace` does in about half the time, by writing the slots
        of the copy without going through a constructor; a job is copied four times on its way.

        Raises:
            KeyError: no such field.
        """
        copy = object.__new__(RoutedJob)
        for write, value in zip(_ALL_WRITERS, _read_all(job), strict=True):
            write(copy, value)
        for name, value in changes.items():
            _WRITERS[name](copy, value)
        return copy
