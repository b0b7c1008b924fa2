"""One step of a task: a record, what changes in it and what the journal says of it.

A command makes a step, moves things along the tables and ends with a decision. Nothing else changes records.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from durable_service.core.canonical_json import CanonicalJson, canonical_json
from durable_service.core.errors import DomainError, Reason
from durable_service.core.model import Action, TaskEvent, TaskRecord, with_entry
from durable_service.core.revision import revise
from durable_service.core.states import ACTION_MOVES, TASK_MOVES, ActionState, TaskState

Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Decision(Generic[Answer_co]):
    """What a command makes of a record.

    Attributes:
        answer: what the caller is told; a repeat is told the same.
        events: new entries of the journal, which commit together with the record.
        written: False for a repeat and for a command that found nothing to do: nothing is stored.
    """

    record: TaskRecord
    answer: Answer_co
    events: tuple[TaskEvent, ...] = ()
    written: bool = True


def unchanged(record: TaskRecord, answer: Answer) -> Decision[Answer]:
    """The decision of a command that does nothing."""
    return Decision(record, answer, written=False)


def noted(decision: Decision[Answer], facts: Mapping[str, str]) -> Decision[Answer]:
    """The decision with facts added to the last entry that it writes into the journal."""
    if not decision.events:
        return decision
    *others, last = decision.events
    data = canonical_json({**json.loads(last.data), **facts})
    return replace(decision, events=(*others, replace(last, data=data)))


class Step:
    """A record on its way from one revision to the next, at one instant of the store's clock."""

    __slots__ = ("_before", "_events", "now_ms", "record")

    def __init__(self, record: TaskRecord, now_ms: int) -> None:
        self._before = record
        self._events: list[TaskEvent] = []
        self.record = record
        self.now_ms = now_ms

    @property
    def changed(self) -> bool:
        return self.record is not self._before

    def change(self, **fields: Any) -> None:
        self.record = revise(self.record, **fields)

    def move(self, state: TaskState) -> None:
        """Moves the task and writes the journal entry that other implementations write as well.

        Raises:
            DomainError: ILLEGAL_TRANSITION.
        """
        before = self.record.state
        if state not in TASK_MOVES[before]:
            raise DomainError(
                Reason.ILLEGAL_TRANSITION, f"a task does not go from {before} to {state}", {"state": before}
            )
        self.change(state=state)
        self.journal("task.state", {"before": before, "state": state})

    def move_action(self, action: Action, state: ActionState, data: dict[str, Any], **fields: Any) -> Action:
        """Moves an action and journals it under the name of its new state.

        Raises:
            DomainError: ILLEGAL_TRANSITION.
        """
        if state not in ACTION_MOVES[action.state]:
            raise DomainError(
                Reason.ILLEGAL_TRANSITION,
                f"an action does not go from {action.state} to {state}",
                {"state": action.state},
            )
        moved = replace(action, state=state, updated_at_ms=self.now_ms, **fields)
        self.put_action(moved)
        self.journal(f"action.{state}", {"actionId": action.id, "before": action.state, **data})
        return moved

    def put_action(self, action: Action) -> None:
        self.change(actions=with_entry(self.record.actions, action.id, action))

    def journal(self, event_type: str, data: dict[str, Any]) -> TaskEvent:
        return self.journal_text(event_type, canonical_json(data))

    def journal_text(self, event_type: str, data: CanonicalJson, event_id: str | None = None) -> TaskEvent:
        """Appends an entry; its attempt and fence are those after the changes so far."""
        record = self.record
        sequence = record.last_sequence + 1
        event = TaskEvent(sequence, event_type, self.now_ms, record.attempt_id, record.fence, data, event_id)
        self._events.append(event)
        self.change(last_sequence=sequence)
        return event

    def decision(self, answer: Answer) -> Decision[Answer]:
        """Ends the step: one more revision, even when nothing else has changed."""
        sealed = revise(self.record, revision=self._before.revision + 1, updated_at_ms=self.now_ms)
        return Decision(sealed, answer, tuple(self._events))

    def decision_if_changed(self, answer: Answer) -> Decision[Answer]:
        """Ends a step that may have found nothing to do."""
        return self.decision(answer) if self.changed else unchanged(self.record, answer)

    def unrevised(self, answer: Answer) -> Decision[Answer]:
        """Ends a creation, or a step that moved nothing but the end of the lease: the revision stays."""
        return Decision(self.record, answer, tuple(self._events))
