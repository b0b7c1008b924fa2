import pytest

from durable_service.client.errors import LeaseLostError
from durable_service.client.held_task import HeldTask
from durable_service.client.stop_signal import StopCause
from sealwork.durable.v1 import task_pb2
from service_common.clocks import ManualClock
from tests.durable_service.client.played_service import verdict


def held_for(seconds: float, clock: ManualClock) -> HeldTask:
    return HeldTask("t-1", "w-1", 1, remaining_seconds=seconds, sent_at=clock.monotonic(), clock=clock)


async def test_a_lease_ends_a_tenth_before_its_time_by_the_local_clock() -> None:
    clock = ManualClock()
    held = held_for(10, clock)
    clock.advance(8_999)
    assert held.is_held
    clock.advance(1)
    assert held.signal.cause is StopCause.LEASE_LOST
    assert not held.is_held


async def test_the_margin_of_a_long_lease_is_five_seconds() -> None:
    clock = ManualClock()
    held = held_for(3_600, clock)
    clock.advance(3_594_999)
    assert held.is_held
    clock.advance(1)
    assert not held.is_held


async def test_a_renewal_counts_from_when_it_was_sent() -> None:
    clock = ManualClock()
    held = held_for(10, clock)
    clock.advance(5_000)
    sent_at = clock.monotonic()
    clock.advance(3_000)
    held.heed(verdict("ACTIVE", remaining=10), sent_at)
    clock.advance(5_999)
    assert held.is_held
    clock.advance(1)
    assert not held.is_held


async def test_an_answer_to_an_older_question_changes_nothing() -> None:
    clock = ManualClock()
    held = held_for(10, clock)
    clock.advance(2_000)
    held.extend(10, 2.0)
    held.extend(60, 1.0)
    clock.advance(9_000)
    assert not held.is_held


async def test_a_shorter_lease_of_a_newer_answer_counts() -> None:
    clock = ManualClock()
    held = held_for(60, clock)
    clock.advance(1_000)
    held.extend(10, 1.0)
    clock.advance(9_000)
    assert not held.is_held


async def test_a_process_that_stood_still_learns_of_the_end_when_it_looks() -> None:
    clock = ManualClock()
    held = held_for(10, clock)
    clock.stall(20_000)
    assert held.signal.cause is None
    with pytest.raises(LeaseLostError, match="the task t-1 is lost: it was not renewed in time"):
        held.require_held()


async def test_a_lost_lease_is_not_renewed_back() -> None:
    clock = ManualClock()
    held = held_for(10, clock)
    held.heed(verdict("LOST"), clock.monotonic())
    held.heed(verdict("ACTIVE", remaining=10), clock.monotonic())
    assert not held.is_held


async def test_a_cancel_keeps_the_lease_and_a_loss_overrides_it() -> None:
    clock = ManualClock()
    held = held_for(10, clock)
    causes: list[StopCause] = []
    held.signal.listen(causes.append)
    held.heed_status(task_pb2.TaskStatus(state=task_pb2.TASK_STATE_CANCEL_REQUESTED))
    assert held.is_held
    held.lose("somebody else has it")
    assert causes == [StopCause.CANCEL_REQUESTED, StopCause.LEASE_LOST]
    assert not held.is_held


async def test_nothing_is_told_once_the_task_is_given_back() -> None:
    clock = ManualClock()
    held = held_for(10, clock)
    held.end()
    clock.advance(60_000)
    held.heed(verdict("LOST"), clock.monotonic())
    assert held.signal.cause is None
    assert clock.pending == 0
