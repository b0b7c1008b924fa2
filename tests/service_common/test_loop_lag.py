import pytest

from service_common.clocks import ManualClock
from service_common.health import ServingState
from service_common.loop_lag import LoopLagMonitor


class Bench:
    """A monitor on a clock that can stall."""

    def __init__(self) -> None:
        self.clock = ManualClock(0)
        self.state = ServingState(["a"])
        self.state.set_ready("a", ready=True)
        self.lags: list[float] = []
        self.monitor = LoopLagMonitor(self.clock, self.state, report=self.lags.append)
        self.monitor.start()

    @property
    def serving(self) -> bool | None:
        return self.state.is_serving("a")


def test_a_loop_on_time_stays_in_service() -> None:
    bench = Bench()
    bench.clock.advance(10_000)
    assert bench.serving is True
    assert bench.lags == [0.0] * 20


def test_a_lag_of_two_seconds_is_borne_and_a_longer_one_is_not() -> None:
    bench = Bench()
    bench.clock.stall(2_500)
    bench.clock.advance(0)
    assert bench.lags == [2.0]
    assert bench.serving is True
    bench.clock.stall(2_501)
    bench.clock.advance(0)
    assert bench.lags == pytest.approx([2.0, 2.001])
    assert bench.serving is False


def test_service_resumes_after_five_seconds_on_time() -> None:
    bench = Bench()
    bench.clock.stall(10_000)
    bench.clock.advance(0)
    assert bench.serving is False
    bench.clock.advance(4_999)
    assert bench.serving is False
    bench.clock.advance(1)
    assert bench.serving is True


def test_a_stopped_monitor_leaves_no_timer() -> None:
    bench = Bench()
    bench.clock.advance(1_000)
    bench.monitor.stop()
    bench.monitor.stop()
    assert bench.clock.pending == 0
