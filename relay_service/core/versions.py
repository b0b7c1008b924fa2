"""Comparing versions of daemons with the operator's floor."""

import re

_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([0-9A-Za-z.-]+))?(?:\+.*)?")

Order = tuple[int, int, int, tuple[tuple[int, int, str], ...]]


def is_below(version: str, floor: str) -> bool:
    """True when both are semantic versions and the first is older; anything else passes."""
    mine, least = _order(version), _order(floor)
    return mine is not None and least is not None and mine < least


def _order(version: str) -> Order | None:
    match = _VERSION.fullmatch(version)
    if match is None:
        return None
    major, minor, patch, label = match.groups()
    return int(major), int(minor), int(patch), _label_order(label)


def _label_order(label: str | None) -> tuple[tuple[int, int, str], ...]:
    """A release is later than all its pre-releases; numbers come before words."""
    if label is None:
        return ((2, 0, ""),)
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in label.split("."))
