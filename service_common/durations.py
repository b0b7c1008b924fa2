"""Durations as people write them."""

import re
from typing import Final

import click

_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h)")
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


class Duration(click.ParamType[float]):
    """A number with a unit: `1500ms`, `60s`, `5m` or `1h`.

    A bare number is refused. Whether it means seconds or milliseconds would be a guess.
    """

    name = "duration"

    def __init__(self, *, milliseconds: bool) -> None:
        """Convert to whole milliseconds, or else to seconds."""
        self._milliseconds = milliseconds

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = _DURATION.fullmatch(str(value).strip())
        if match is None:
            self.fail(
                f"{value!r} is not a duration: write a number with its unit, as 1500ms, 60s, 5m or 1h",
                param,
                ctx,
            )
        milliseconds = float(match[1]) * _UNIT_MS[match[2]]
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
