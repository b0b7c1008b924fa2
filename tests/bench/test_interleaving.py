from dataclasses import dataclass, field
from random import Random

import pytest

from bench.figures import cores, cpu_ms, latency_ms, rate
from bench.interleaving import InterleavedRun, Ratio, run_interleaved
from bench.variant import BurstResult, Variant, VariantFailedError, VariantUnavailableError


def burst_of(operations: int, cpu_seconds: float = 1.0, elapsed: float = 2.0) -> BurstResult:
    return BurstResult(operations, [1.0, 3.0], cpu_seconds, 2048, elapsed)


@dataclass
class Scripted:
    """A variant that answers from a script and writes down what is asked of it."""

    name: str
    log: list[str]
    unavailable: str = ""
    fails_in: int = 0
    bursts: int = field(default=0, init=False)

    async def start(self) -> None:
        self.log.append(f"start {self.name}")
        if self.unavailable:
            raise VariantUnavailableError(self.unavailable)

    async def burst(self, seconds: float) -> BurstResult:
        self.bursts += 1
        self.log.append(f"burst {self.name} {seconds}")
        if self.bursts == self.fails_in:
            raise VariantFailedError("its server is gone")
        return burst_of(10 * self.bursts)

    async def stop(self) -> None:
        self.log.append(f"stop {self.name}")


async def run(variants: list[Variant], rounds: int = 3) -> InterleavedRun:
    return await run_interleaved(variants, rounds=rounds, burst_seconds=0.5, random=Random(3))


async def test_each_round_gives_each_variant_one_burst() -> None:
    log: list[str] = []
    found = await run([Scripted("a", log), Scripted("b", log), Scripted("c", log)])
    assert [sorted(bursts) for bursts in found.rounds] == [["a", "b", "c"]] * 3
    assert [burst.operations for burst in found.bursts("b")] == [10, 20, 30]
    assert found.absent == {}


async def test_all_are_up_before_the_first_burst_and_stopped_after_the_last() -> None:
    log: list[str] = []
    await run([Scripted("a", log), Scripted("b", log)], rounds=1)
    assert log[:2] == ["start a", "start b"]
    assert sorted(log[2:4]) == ["burst a 0.5", "burst b 0.5"]
    assert log[4:] == ["stop b", "stop a"]


async def test_the_order_changes_from_round_to_round() -> None:
    log: list[str] = []
    await run([Scripted(name, log) for name in "abcd"], rounds=4)
    bursts = [line.split()[1] for line in log if line.startswith("burst")]
    orders = {tuple(bursts[at : at + 4]) for at in range(0, 16, 4)}
    assert len(orders) > 1


async def test_a_variant_that_cannot_start_is_named_stopped_and_left_out() -> None:
    log: list[str] = []
    found = await run([Scripted("a", log, unavailable="npm is missing"), Scripted("b", log)], rounds=2)
    assert found.absent == {"a": "npm is missing"}
    assert [list(bursts) for bursts in found.rounds] == [["b"], ["b"]]
    assert "stop a" in log


async def test_a_variant_that_breaks_down_keeps_its_rounds_and_gets_no_more() -> None:
    log: list[str] = []
    found = await run([Scripted("a", log, fails_in=2), Scripted("b", log)])
    assert found.absent == {"a": "broke down in round 2: its server is gone"}
    assert len(found.bursts("a")) == 1
    assert len(found.bursts("b")) == 3


async def test_an_unforeseen_error_still_stops_every_server() -> None:
    log: list[str] = []

    class Buggy(Scripted):
        async def burst(self, seconds: float) -> BurstResult:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run([Scripted("a", log), Buggy("b", log)])
    assert log[-2:] == ["stop b", "stop a"]


def test_a_ratio_is_the_median_of_the_rounds_in_which_both_ran() -> None:
    found = InterleavedRun([
        {"peer": burst_of(100, 1.0), "ours": burst_of(100, 0.25)},
        {"peer": burst_of(100, 3.0), "ours": burst_of(100, 0.5)},
        {"peer": burst_of(100, 9.0)},
        {"peer": burst_of(100, 2.0), "ours": burst_of(100, 1.0)},
    ])  # fmt: skip
    assert found.ratio("peer", "ours", cpu_ms) == Ratio(median=4.0, low=2.0, high=6.0, pairs=3)


def test_variants_that_never_met_have_no_ratio() -> None:
    found = InterleavedRun([{"peer": burst_of(1)}, {"ours": burst_of(1)}])
    assert found.ratio("peer", "ours", rate) is None


def test_the_figures_of_a_burst() -> None:
    burst = BurstResult(
        operations=50,
        latencies_ms=[1.0, 2.0, 9.0],
        server_cpu_seconds=0.5,
        server_rss_kib=1,
        elapsed_seconds=2.0,
    )
    assert rate(burst) == 25.0
    assert cpu_ms(burst) == 10.0
    assert cores(burst) == 0.25
    assert latency_ms(0.5)(burst) == 2.0


def test_a_burst_in_which_nothing_was_done_has_no_cost_an_operation() -> None:
    idle = BurstResult(0, [], 0.5, 1, 2.0)
    assert cpu_ms(idle) == float("inf")
    assert rate(idle) == 0.0
