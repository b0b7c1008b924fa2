"""Durations as people write them."""

import re
from typing import Final

import click

_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)")
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def milliseconds_of(text: str) -> float:
    """What a number with its unit means; a bare number is refused.

    Raises:
        ValueError: it is not a duration; the text says how to write one.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text!r} is not a duration: write a number with its unit, as 1500ms, 60s, 5m, 1h or 7d"
        )
    return float(match[1]) * _UNIT_MS[match[2]]


class Duration(click.ParamType[float]):
    """A number with a unit: `1500ms`, `60s`, `5m`, `1h` or `7d`.

    A bare number is refused. Whether it means seconds or milliseconds would be a guess.
    """

    name = "duration"

    def __init__(self, *, milliseconds: bool) -> None:
        """Convert to whole milliseconds, or else to seconds."""
        self._milliseconds = milliseconds

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            milliseconds = milliseconds_of(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not self._milliseconds:
            return milliseconds / 1_000
        if not milliseconds.is_integer():
            self.fail(f"{value!r} is not a whole number of milliseconds", param, ctx)
        return int(milliseconds)


def show_duration(milliseconds: float) -> str:
    """Return the duration with the largest unit that leaves a whole number."""
    for unit in ("h", "m", "s"):
        number = milliseconds / _UNIT_MS[unit]
        # A day of minutes reads worse than hours; 90 s reads better than 1.5 m.
        if number >= 1 and number.is_integer():
            return f"{number:g}{unit}"
    return f"{milliseconds:g}ms"
