from dataclasses import fields, replace

import pytest

from relay_service.core.model import JobState, RoutedJob
from relay_service.core.revision import revise

from .jobs import CLAIM, job


def test_a_revised_job_differs_in_the_named_fields_only() -> None:
    found = job(JobState.READY, reoffer_to="runner", refused_by=("other",))
    revised = revise(found, state=JobState.RUNNING, reoffer_to=None)
    assert revised == replace(found, state=JobState.RUNNING, reoffer_to=None)
    assert found.state is JobState.READY
    assert {field.name for field in fields(RoutedJob)} == set(RoutedJob.__slots__)


def test_a_job_revised_in_nothing_is_equal_and_another() -> None:
    found = job(JobState.AWAITING_PAYLOAD, claim=CLAIM)
    assert revise(found) == found
    assert revise(found) is not found


def test_a_field_that_is_not_there_is_a_fault() -> None:
    with pytest.raises(KeyError):
        revise(job(), flavour="sweet")  # type: ignore[call-arg]
