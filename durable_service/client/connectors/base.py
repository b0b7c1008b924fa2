"""What a connector is: one way to the outside, with a version, and a way to look up what happened."""

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from durable_service.client.actions import Action
from durable_service.client.stop_signal import StopSignal


@dataclass(frozen=True, slots=True)
class Found:
    """It happened.

    Attributes:
        result_ref: Where the result is kept.
        evidence_ref: The proof.
    """

    result_ref: str
    evidence_ref: str


@dataclass(frozen=True, slots=True)
class Absent:
    """It did not happen, and no request can arrive any more. That nothing is there now is not enough.

    Attributes:
        evidence_ref: The proof. It releases one dispatch and has to name that one, by its fence for instance:
            the same proof is not taken for a later dispatch.
    """

    evidence_ref: str


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Still not known; the look-up is kept as evidence."""

    evidence_ref: str


Finding: TypeAlias = Found | Absent | Unsettled


class Connector(Protocol):
    """Carries actions out. One object may serve many tasks at once."""

    @property
    def version(self) -> str:
        """Bound into every action: another version never settles an action of this one."""

    async def dispatch(self, action: Action, signal: StopSignal) -> str:
        """Carry an action out and return where its result is kept.

        Called once for each dispatch, after the intent is written down. Pass `action.idempotency_key` to the
        remote side, and touch nothing but `action.destination`.

        Args:
            action: A copy of the action.
            signal: Set when the work should stop. An effect under way is best finished.

        Raises:
            NotSentError: It is certain that nothing was sent.
            Exception: Anything else leaves the outcome unknown.
        """

    async def reconcile(self, action: Action) -> Finding:
        """Look up whether an action has happened; changes nothing."""
