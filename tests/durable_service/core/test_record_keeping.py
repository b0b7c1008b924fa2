"""What a holder writes down moves the task nowhere, so nobody who waits for it to move need hear of it."""

import pytest

from durable_service.core.availability import availability
from durable_service.core.errors import DomainError
from durable_service.core.lapses import due_at_ms
from durable_service.lease_news import is_record_keeping, lease_push, wake_push
from durable_service.store.base import TaskChange

from .stages import STAGES, command_of

COMMANDS = [
    "claim",
    "recover",
    "renew",
    "release",
    "yield",
    "reserve",
    "complete",
    "fail",
    "cancel",
    "acknowledge",
    "prepare",
    "dispatch",
    "confirm",
    "unknown",
    "reconcile",
    "append",
    "artifact",
    "checkpoint",
    "withdraw",
    "held_extension",
    "extension",
    "decide",
]
# Where a lease is held and stays held.
KEEPING = {"append", "artifact", "checkpoint", "reserve", "held_extension", "extension"}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_task_that_is_written_about_stands_where_it_stood(stage: str, command: str) -> None:
    story = STAGES[stage]()
    before = story.record
    try:
        decision = command_of(command)(story)
    except (DomainError, KeyError):
        return
    if not decision.written:
        return
    after = decision.record
    change = TaskChange(before, after, decision.events)
    if not is_record_keeping(change):
        assert command not in KEEPING or before.lease is None or after.lease is None
        return
    assert lease_push(change) is None
    assert wake_push(change) is None
    assert due_at_ms(before) == due_at_ms(after)
    assert availability(before) == availability(after)
    assert before.terminal is after.terminal is False


def test_what_another_process_did_is_looked_at_in_full() -> None:
    story = STAGES["held"]()
    decision = command_of("append")(story)
    assert is_record_keeping(TaskChange(story.record, decision.record, decision.events))
    assert not is_record_keeping(TaskChange(story.record, decision.record, decision.events, remote=True))


def test_a_task_that_came_or_went_is_no_record_keeping() -> None:
    record = STAGES["held"]().record
    assert not is_record_keeping(TaskChange(None, record))
    assert not is_record_keeping(TaskChange(record, None))
