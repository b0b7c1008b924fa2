"""The outside world in the memory of the tests: every effect is counted by its idempotency key."""

from collections import Counter
from dataclasses import dataclass, field

from durable_service.client import Action, StopSignal
from durable_service.client.connectors import Absent, Found
from durable_service.client.connectors.base import Finding


@dataclass
class World:
    """A connector. An effect happens before anything is awaited, so under a lease that its worker still has.

    Attributes:
        effects: How often each key was acted upon.
        confirmed: By key, the result that was answered.
    """

    version: str = "world@1"
    effects: Counter[str] = field(default_factory=Counter)
    confirmed: dict[str, str] = field(default_factory=dict)

    async def dispatch(self, action: Action, signal: StopSignal) -> str:
        del signal
        self.effects[action.idempotency_key] += 1
        return result_of(action.idempotency_key)

    async def reconcile(self, action: Action) -> Finding:
        evidence = f"world:{action.id}:{action.dispatch_fence}"
        if self.effects[action.idempotency_key]:
            return Found(result_of(action.idempotency_key), evidence)
        return Absent(evidence)


def result_of(key: str) -> str:
    return f"result:{key[-12:]}"
