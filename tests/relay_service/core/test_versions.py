"""Which version is older, by the order of semantic versions."""

import pytest

from relay_service.core.versions import is_below

# Each is older than the next: releases after their pre-releases, numbers before words and by their value.
RISING = (
    "0.9.99",
    "0.10.0",
    "1.0.0-1",
    "1.0.0-2",
    "1.0.0-11",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.2",
    "1.0.0-alpha.11",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1-rc.1",
    "1.0.1",
    "1.2.0",
    "1.10.0",
    "2.0.0",
    "10.0.0",
)


def test_the_order_of_versions() -> None:
    for place, version in enumerate(RISING):
        for other_place, other in enumerate(RISING):
            assert is_below(version, other) is (place < other_place), (version, other)


@pytest.mark.parametrize(
    ("version", "floor"), [("v1.2.3", "1.2.4"), ("1.2.3+build.9", "1.2.4"), ("1.2.3", "v1.2.4")]
)
def test_spellings_of_a_version(version: str, floor: str) -> None:
    assert is_below(version, floor)


def test_a_build_makes_no_difference() -> None:
    assert not is_below("1.2.3+1", "1.2.3+2")
    assert not is_below("1.2.3+2", "1.2.3+1")


@pytest.mark.parametrize(
    "version", ["", "0", "1.2", "1.2.3.4", "one", "1.2.x", "-1.0.0", "1.0.0-", "1 .0.0", "0.0.0\n", "٠.١.٢ "]
)
def test_what_is_no_version_is_below_nothing(version: str) -> None:
    """A build of somebody's own is not shut out for its name."""
    assert not is_below(version, "9.9.9")
    assert not is_below("0.0.1", version)
