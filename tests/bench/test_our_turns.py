import io
from dataclasses import dataclass

from rich.console import Console

from bench.our_relay.turns import Group, run_in_turns
from bench.session import Session
from bench.variant import BurstResult, VariantUnavailableError


@dataclass
class Scripted:
    name: str
    log: list[str]
    unavailable: str = ""

    async def start(self) -> None:
        self.log.append(f"start {self.name}")
        if self.unavailable:
            raise VariantUnavailableError(self.unavailable)

    async def burst(self, seconds: float) -> BurstResult:
        self.log.append(f"burst {self.name} {seconds}")
        return BurstResult(10, [1.0], 1.0, 2048, 2.0)

    async def stop(self) -> None:
        self.log.append(f"stop {self.name}")


def session() -> Session:
    return Session(Console(file=io.StringIO()))


async def test_one_group_is_up_at_a_time() -> None:
    log: list[str] = []
    groups: list[Group] = [lambda: [Scripted("a", log)], lambda: [Scripted("b", log)]]
    run = await run_in_turns(session(), groups, rounds=2, seconds=0.5)
    turn = ["start a", "burst a 0.5", "stop a", "start b", "burst b 0.5", "stop b"]
    assert log == turn * 2
    assert [sorted(bursts) for bursts in run.rounds] == [["a", "b"]] * 2


async def test_a_group_that_cannot_start_is_tried_once() -> None:
    log: list[str] = []
    groups: list[Group] = [lambda: [Scripted("a", log, "npm is missing")], lambda: [Scripted("b", log)]]
    run = await run_in_turns(session(), groups, rounds=2, seconds=0.5)
    assert run.absent == {"a": "npm is missing"}
    assert log.count("start a") == 1
    assert [list(bursts) for bursts in run.rounds] == [["b"], ["b"]]
