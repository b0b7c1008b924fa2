"""Copies of records."""

from dataclasses import replace

import pytest

from durable_service.core.revision import differs_in_lease_alone, revise
from durable_service.core.states import TaskState

from .tasks import Story


def test_it_does_what_replace_does() -> None:
    story = Story.begin()
    story.claim()
    record = story.record
    assert revise(record, state=TaskState.STOPPED, fence=9) == replace(
        record, state=TaskState.STOPPED, fence=9
    )
    assert (record.state, record.fence) == (TaskState.RUNNING, 1)


def test_there_is_no_other_field() -> None:
    with pytest.raises(KeyError):
        revise(Story.begin().record, colour="red")  # type: ignore[call-arg]


def test_a_lease_alone() -> None:
    story = Story.begin()
    story.claim()
    assert differs_in_lease_alone(story.record, revise(story.record, lease=None))
    assert not differs_in_lease_alone(story.record, revise(story.record, lease=None, fence=2))
