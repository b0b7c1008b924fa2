"""Rounds of groups of variants, one group up at a time."""

from collections.abc import Callable, Sequence

from bench.interleaving import InterleavedRun
from bench.session import Session
from bench.variant import Variant

Group = Callable[[], Sequence[Variant]]


async def run_in_turns(
    session: Session, groups: Sequence[Group], *, rounds: int, seconds: float
) -> InterleavedRun:
    """Starts, bursts and stops one group after the other, so many times.

    For variants that cost something while they are up, such as thousands of open connections. Bursts of one
    round are still taken soon after one another, and their ratios are those of a round.

    Args:
        groups: each makes new variants, whose names are unique among all groups; those of one group are up
            together.
    """
    merged = InterleavedRun()
    broken: set[int] = set()
    for _ in range(rounds):
        bursts = {}
        for number, group in enumerate(groups):
            if number in broken:
                continue
            run = await session.run(group(), rounds=1, seconds=seconds)
            bursts.update(run.rounds[0])
            merged.absent.update(run.absent)
            if run.absent:
                broken.add(number)
        merged.rounds.append(bursts)
    return merged
