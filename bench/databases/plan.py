"""How much of the durable service on databases is measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.durable.crew import Operation

CREWS: Sequence[int] = (1, 8, 64)
REPLICAS: Sequence[int] = (1, 2, 3)
# What is compared; creating and completing are parts of a lifecycle.
COMPARED: Sequence[Operation] = (Operation.CLAIM, Operation.RENEW, Operation.EVENT, Operation.LIFECYCLE)
# A single write under a lease, which a bare compare-and-set is the least of.
WRITES: Sequence[Operation] = (Operation.RENEW, Operation.EVENT)


@dataclass(frozen=True, slots=True)
class DatabasesEffort:
    """How long to measure.

    Attributes:
        operations: of each kind in a round; as many as there are workers where those are more.
        few_operations: the same on a database that is slow.
    """

    rounds: int
    operations: int
    few_operations: int


QUICK = DatabasesEffort(rounds=2, operations=64, few_operations=16)
FULL = DatabasesEffort(rounds=5, operations=96, few_operations=32)
