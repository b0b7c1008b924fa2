import resource

import pytest

from service_common.process_limits import raise_file_limit


class Limits:
    """The system's limit of open files."""

    def __init__(self, soft: int, hard: int, cap: int | None = None) -> None:
        self.soft, self.hard, self.cap = soft, hard, cap

    def getrlimit(self, which: int) -> tuple[int, int]:
        assert which == resource.RLIMIT_NOFILE
        return self.soft, self.hard

    def setrlimit(self, which: int, limits: tuple[int, int]) -> None:
        if self.cap is not None and limits[0] > self.cap:
            raise ValueError("current limit exceeds maximum limit")
        self.soft = limits[0]


def install(monkeypatch: pytest.MonkeyPatch, limits: Limits) -> Limits:
    monkeypatch.setattr("service_common.process_limits.resource.getrlimit", limits.getrlimit)
    monkeypatch.setattr("service_common.process_limits.resource.setrlimit", limits.setrlimit)
    return limits


def test_the_limit_is_raised_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = install(monkeypatch, Limits(1_024, 65_536))
    assert raise_file_limit(10_000) is None
    assert limits.soft == 65_536


def test_too_low_a_limit_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Limits(1_024, 4_096))
    warning = raise_file_limit(10_000)
    assert warning is not None
    assert "4096" in warning
    assert "10000" in warning
    assert "LimitNOFILE" in warning


def test_a_system_that_caps_below_its_own_hard_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = install(monkeypatch, Limits(1_024, 1 << 40, cap=10_240))
    assert raise_file_limit(10_000) is None
    assert limits.soft == 10_000
    warning = raise_file_limit(20_000)
    assert warning is not None
    assert "10000" in warning


def test_no_limit_is_enough_for_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Limits(resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert raise_file_limit(10**9) is None


def test_the_real_limit_can_be_read() -> None:
    assert raise_file_limit(1) is None
