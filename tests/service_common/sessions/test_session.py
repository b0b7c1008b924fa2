"""One stream on the server, without a socket."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest
import structlog.testing

from sealwork.session.v1 import session_pb2
from service_common.clocks import ManualClock
from service_common.errors import ServiceError
from service_common.sessions.endings import EndReason, slow_consumer
from tests.service_common.sessions.fakes import AbortedError, FakeContext, FakeSession, Frame, Item, settle

BAD = ServiceError(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID", "no good")


async def nothing() -> None:
    """A hello that needs no answer."""


class Serving:
    """A session being served, as a servicer does it."""

    def __init__(self, clock: ManualClock, **times: int) -> None:
        self.clock = clock
        self.context = FakeContext()
        self.session = FakeSession(self.context, clock, **times)
        self.session.follow_greeting(1)
        self.task = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        try:
            await self.session.serve(nothing())
            await self.session.finish()
        finally:
            self.session.closed()

    async def say(self, *items: Item, seq: int = 2) -> None:
        self.context.reading.put_nowait(Frame(seq, items))
        await settle()

    async def ended(self) -> None:
        await asyncio.wait([self.task], timeout=5)
        assert self.task.done()
        # Looked at here, or asyncio would report it when the task is collected.
        _ = None if self.task.cancelled() else self.task.exception()
        await asyncio.wait_for(self.session.wait_ended(), 1)
        assert self.clock.pending == 0


@pytest.fixture
def serve(manual_clock: ManualClock) -> Callable[..., Serving]:
    return lambda **times: Serving(manual_clock, **times)


async def test_items_are_received_in_order(serve: Callable[..., Serving]) -> None:
    running = serve()
    await running.say(Item("a"), Item(None), Item("b"))
    assert [item.arm for item in running.session.received] == ["a", "b"]
    assert running.session.unknown_items == 1
    running.task.cancel()
    await running.ended()
    assert running.session.end_reason is EndReason.LOST


async def test_frames_are_numbered_on_from_the_challenge(serve: Callable[..., Serving]) -> None:
    running = serve()
    for seq in (2, 3):
        await running.say(Item("x"), seq=seq)
        running.session.send_control(Item("y"))
        await settle()
    assert [(frame.seq, frame.ack_seq) for frame in running.context.written] == [(2, 2), (3, 3)]
    running.task.cancel()
    await running.ended()


async def test_a_long_frame_lets_others_run(serve: Callable[..., Serving]) -> None:
    """A cancel of somebody else does not wait for thousands of items."""
    running, turns = serve(), 0
    running.context.reading.put_nowait(Frame(2, tuple(Item("x", 1) for _ in range(6_400))))
    while len(running.session.received) < 6_400:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 100
    running.task.cancel()
    await running.ended()


@pytest.mark.parametrize("items", [20, 21])
async def test_twenty_bad_items(serve: Callable[..., Serving], items: int) -> None:
    running = serve()
    await running.say(*[Item("x", content=BAD)] * (items - 1))
    if items == 20:
        assert running.context.arms == ["frame_error"] * 19
        await running.say(Item("x", content=BAD))
    await running.ended()
    assert running.context.reason == "PROTOCOL_VIOLATION"
    assert running.session.end_reason is EndReason.REFUSED
    assert len(running.session.received) == 20


async def test_a_frame_that_cannot_be_read_counts_as_one(serve: Callable[..., Serving]) -> None:
    running = serve()
    running.context.reading.put_nowait(BAD)
    running.context.reading.put_nowait(BAD)
    await settle()
    errors = [item.content for frame in running.context.written for item in frame.items]
    assert [(error.frame_seq, error.item_index) for error in errors] == [(2, 0), (3, 0)]
    running.task.cancel()
    await running.ended()


async def test_a_fault_of_ours_is_no_fault_of_the_peers(serve: Callable[..., Serving]) -> None:
    """However often it happens; and it tells an incident and nothing else."""
    running = serve()
    with structlog.testing.capture_logs() as logged:
        await running.say(*[Item("x", content=RuntimeError("a bug")) for _ in range(50)])
    assert len({entry["incident_id"] for entry in logged}) == 50
    errors = [item.content for frame in running.context.written for item in frame.items]
    assert [error.item_index for error in errors] == list(range(50))
    assert {error.status.code for error in errors} == {grpc.StatusCode.INTERNAL.value[0]}
    assert not any("a bug" in str(error) for error in errors)
    running.task.cancel()
    await running.ended()


async def test_a_failure_to_read_goes_on_to_whoever_serves(serve: Callable[..., Serving]) -> None:
    running = serve()
    failure = RuntimeError("a bug")
    running.context.reading.put_nowait(failure)
    await running.ended()
    assert running.task.exception() is failure
    assert running.session.end_reason is EndReason.LOST


async def test_the_end_of_the_requests_is_no_goodbye(serve: Callable[..., Serving]) -> None:
    running = serve()
    running.context.reading.put_nowait(grpc.aio.EOF)
    await running.ended()
    assert running.task.exception() is None
    assert running.session.end_reason is EndReason.LOST


async def test_an_end_from_elsewhere_interrupts_the_read(serve: Callable[..., Serving]) -> None:
    running = serve()
    await settle()
    running.session.end(EndReason.SUPERSEDED, BAD)
    running.session.end(EndReason.GOODBYE)
    await running.ended()
    assert isinstance(running.task.exception(), AbortedError)
    assert running.session.end_reason is EndReason.SUPERSEDED
    assert running.task.cancelling() == 0


async def test_an_end_before_serving_is_an_end(manual_clock: ManualClock) -> None:
    running = Serving(manual_clock)
    running.session.end(EndReason.SUPERSEDED, BAD)
    await running.ended()
    assert running.context.reason == "FIELD_INVALID"
    assert running.session.received == []


async def test_an_end_out_of_an_item(serve: Callable[..., Serving]) -> None:
    running = serve()
    goodbye = Item("x", content=lambda session: session.end(EndReason.GOODBYE))
    await running.say(Item("a"), goodbye, Item("b"))
    await running.ended()
    assert [item.arm for item in running.session.received] == ["a", "x"]
    assert running.task.exception() is None
    assert running.context.statuses == []


async def test_what_was_answered_before_a_clean_end_is_written(serve: Callable[..., Serving]) -> None:
    running = serve()
    running.context.taking.clear()

    def answer_and_leave(session: Any) -> None:
        session.send_control(Item("answer"))
        session.end(EndReason.GOODBYE)

    await running.say(Item("x", content=answer_and_leave))
    assert not running.task.done()
    running.context.taking.set()
    await running.ended()
    assert running.context.arms == ["answer"]


async def test_a_clean_end_waits_for_a_slow_peer_within_bounds(serve: Callable[..., Serving]) -> None:
    """Goodbye is no way to keep a stream open without reading."""
    running = serve()
    running.context.taking.clear()
    running.session.send_control(Item("answer"))
    await running.say(Item("x", content=lambda session: session.end(EndReason.GOODBYE)))
    await running.clock.advance_async(10_000)
    assert not running.task.done()
    await running.clock.advance_async(10_000)
    await running.ended()
    assert running.task.cancelled()
    assert running.session.end_reason is EndReason.GOODBYE


async def test_a_write_that_stands_still_ends_the_stream(serve: Callable[..., Serving]) -> None:
    running = serve()
    running.context.taking.clear()
    running.session.send_control(Item("x"))
    await running.clock.advance_async(10_000)
    running.context.taking.set()
    await running.ended()
    assert running.context.reason == "SLOW_CONSUMER"
    assert running.session.end_reason is EndReason.SLOW


async def test_a_status_that_is_not_taken_is_given_up(serve: Callable[..., Serving]) -> None:
    running = serve()
    await settle()
    running.context.taking.clear()
    running.session.end(EndReason.SLOW, slow_consumer())
    await running.clock.advance_async(9_999)
    assert not running.task.done()
    await running.clock.advance_async(1)
    await running.ended()
    assert running.task.cancelled()


async def test_a_lane_of_answers_that_overflows_ends_the_stream(serve: Callable[..., Serving]) -> None:
    running = serve(queued_controls=4)
    running.context.taking.clear()
    await settle()
    for _ in range(5):
        running.session.send_control(Item("push"))
    await settle()
    running.context.taking.set()
    await running.ended()
    assert running.context.reason == "SLOW_CONSUMER"


async def test_calls_wait_for_room_instead(serve: Callable[..., Serving]) -> None:
    running = serve(queued_controls=4, frame_bytes=20)
    running.context.taking.clear()
    answer = Item("x", 1, content=lambda session: session.send_control(Item("answer")))
    await running.say(*[answer] * 20)
    assert len(running.session.received) == 3
    running.context.taking.set()
    await settle()
    assert len(running.session.received) == 20
    assert running.context.arms == ["answer"] * 20
    running.task.cancel()
    await running.ended()


async def test_notices_that_do_not_fit_ask_for_one_resync(serve: Callable[..., Serving]) -> None:
    running = serve(queued_notices=2)
    await settle()
    assert [running.session.send_notice(Item(f"n{number}")) for number in range(5)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    await settle()
    assert running.context.arms == ["resync", "n0", "n1"]
    (resync,) = [item.content for item in running.context.written[0].items if item.arm == "resync"]
    assert resync.reason == session_pb2.RESYNC_REASON_NOTICES_DROPPED
    assert running.session.wanted == 1
    for _ in range(3):
        running.session.send_notice(Item("more"))
    await settle()
    assert running.context.arms.count("resync") == 1
    await running.clock.advance_async(15_000)
    for _ in range(3):
        running.session.send_notice(Item("more"))
    await settle()
    assert running.context.arms.count("resync") == 2
    running.task.cancel()
    await running.ended()


async def test_a_drain_has_a_deadline_of_its_own(serve: Callable[..., Serving]) -> None:
    running = serve()
    await settle()
    running.session.ask_to_move(session_pb2.DRAIN_REASON_REBALANCE, 5_000)
    running.session.ask_to_move(session_pb2.DRAIN_REASON_SERVER_SHUTDOWN)
    await settle()
    (notice,) = [item.content for frame in running.context.written for item in frame.items]
    assert notice.reason == session_pb2.DRAIN_REASON_REBALANCE
    assert notice.deadline.ToMilliseconds() == 5_000
    assert notice.reconnect_after.ToMilliseconds() <= 2_500
    assert running.session.draining
    await running.clock.advance_async(5_000)
    await running.ended()
    assert running.context.reason == "SERVER_DRAINING"
    assert running.session.end_reason is EndReason.DRAINED


async def test_a_call_that_is_cancelled_from_outside_stays_cancelled(serve: Callable[..., Serving]) -> None:
    running = serve()
    await settle()
    running.task.cancel()
    await running.ended()
    assert running.task.cancelled()
    assert running.session.end_reason is EndReason.LOST
    assert running.context.statuses == []


async def test_a_peer_that_vanished_in_the_middle_of_a_write(serve: Callable[..., Serving]) -> None:
    running = serve()
    running.context.broken = True
    running.session.send_control(Item("x"))
    await settle()
    running.context.reading.put_nowait(grpc.aio.EOF)
    await running.ended()
    assert running.session.end_reason is EndReason.LOST


async def test_what_came_while_the_process_stood_still_is_read_before_a_peer_counts_as_silent(
    serve: Callable[..., Serving],
) -> None:
    serving = serve()
    await settle()
    serving.clock.stall(60_000)
    serving.clock.advance(0)
    await serving.say(Item("a"))
    await serving.clock.advance_async(44_999)
    assert not serving.session.ended
    await serving.clock.advance_async(1)
    assert serving.session.end_reason is EndReason.SILENT
    await serving.ended()


async def test_a_peer_that_said_nothing_either_has_a_second_more(serve: Callable[..., Serving]) -> None:
    serving = serve()
    await settle()
    serving.clock.stall(60_000)
    await serving.clock.advance_async(999)
    assert not serving.session.ended
    await serving.clock.advance_async(1)
    assert serving.session.end_reason is EndReason.SILENT
    await serving.ended()
