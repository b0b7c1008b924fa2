"""Asking: what leaves, when, and what is made of what comes back."""

import asyncio
from typing import Any

import grpc
import pytest

from durable_service.client import NotSentError
from durable_service.client.stop_signal import StopCause
from relay_connector import OutcomeOpenError, WhyNone
from relay_service.client import (
    CanceledOutcome,
    ErrorOutcome,
    JobEndedError,
    JobEndReason,
    ResultRefusedError,
    SiteClosedError,
)
from relay_service.client.envelope import SealError
from tests.harness.waiting import eventually
from tests.relay_connector.played_parties import (
    ARTIFACT,
    DEADLINE_MS,
    GIVEN,
    HELLO,
    JOB,
    NOW_MS,
    Scene,
    durable_refusal,
    relay_refusal,
    result,
)

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


async def test_a_question_is_asked_under_the_names_and_the_deadline_of_its_action() -> None:
    scene = Scene()
    async with scene.dispatching() as asking:
        (asked,) = scene.site.enqueued
        asked.pop("admit")
        assert asked == {
            "payload": HELLO,
            "owner": "alice",
            "kind": "llm.generate",
            "audience": "private",
            "purpose": None,
            "job_id": JOB,
            "deadline_at_ms": DEADLINE_MS,
            "acknowledge": False,
        }
        assert not asking.done()


async def test_the_answer_is_kept_and_the_relay_is_not_told_yet() -> None:
    scene = Scene(keep_ms=5_000)
    async with scene.dispatching() as asking:
        assert await scene.site.ask_to_give()
        scene.site.end(result())
        assert await asking == f"artifact:{ARTIFACT}"
    content, media_type, ttl_ms = scene.records.artifacts[ARTIFACT]
    assert b'"content":"an answer"' in content
    assert (media_type, ttl_ms) == ("application/json", 5_000)
    (handle,) = scene.site.handles
    # Only the word that the action is confirmed lets the relay forget.
    assert (handle.acknowledged, handle.abandoned, scene.site.settled) == (False, True, [])
    await scene.asking.settled(scene.action)
    assert scene.site.settled == [JOB]


async def test_it_is_written_down_before_the_prompt_leaves() -> None:
    scene = Scene()
    scene.records.writing.clear()
    async with scene.dispatching():
        giving = asyncio.ensure_future(scene.site.ask_to_give())
        await eventually(lambda: scene.records.entered == 1)
        assert not giving.done()
        scene.records.writing.set()
        assert await giving
        # 600,000 to the deadline, a day for the result, two minutes for the clocks.
        assert scene.records.checkpoints == {GIVEN: ({"given": True}, 600_000 + 86_400_000 + 120_000)}


async def test_what_cannot_be_written_down_does_not_leave() -> None:
    scene = Scene()
    scene.records.refusal = durable_refusal("LEASE_LOST")
    async with scene.dispatching():
        with pytest.raises(Exception, match="LEASE_LOST"):
            await scene.site.ask_to_give()


async def test_the_prompt_is_given_once() -> None:
    scene = Scene()
    async with scene.dispatching() as asking:
        assert await scene.site.ask_to_give("l-1")
        # The same grant again is the same device that waits for the same payload.
        assert await scene.site.ask_to_give("l-1")
        assert not await scene.site.ask_to_give("l-2")
        assert await asking == f"artifact:{ARTIFACT}"
    assert scene.kept() == '{"disposition":"none","retryable":true,"why":"given-up"}'
    assert scene.site.said == ["cancel", "abandon"]


async def test_what_a_second_device_says_of_a_prompt_that_it_never_had_does_not_count() -> None:
    scene = Scene()
    scene.site.on_cancel = lambda handle: handle.ending.set_result(result(CanceledOutcome()))
    async with scene.dispatching() as asking:
        assert await scene.site.ask_to_give("l-1")
        assert not await scene.site.ask_to_give("l-2")
        await asking
    assert scene.kept() == '{"disposition":"none","retryable":true,"why":"given-up"}'


async def test_the_prompt_is_given_again_where_that_is_allowed() -> None:
    scene = Scene(again=True)
    async with scene.dispatching() as asking:
        assert await scene.site.ask_to_give("l-1")
        assert await scene.site.ask_to_give("l-2")
        scene.site.end(result())
        await asking
    assert '"content":"an answer"' in scene.kept()


async def test_a_grant_that_is_over_before_it_is_written_down_gets_nothing() -> None:
    scene = Scene()
    scene.records.writing.clear()
    async with scene.dispatching():
        first = asyncio.ensure_future(scene.site.ask_to_give("l-1"))
        await eventually(lambda: scene.records.entered == 1)
        second = asyncio.ensure_future(scene.site.ask_to_give("l-2"))
        await asyncio.sleep(0)
        scene.records.writing.set()
        assert not await first
        assert await second


async def test_a_grant_that_waits_for_too_long_gets_nothing_and_the_next_one_does() -> None:
    scene = Scene()
    scene.records.writing.clear()
    async with scene.dispatching():
        first = asyncio.ensure_future(scene.site.ask_to_give("l-1", seconds=10))
        await eventually(lambda: scene.records.entered == 1)
        await scene.clock.advance_async(10_000)
        scene.records.writing.set()
        assert not await first
        assert await scene.site.ask_to_give("l-2")


@pytest.mark.parametrize(
    ("outcome", "kept"),
    [
        (ErrorOutcome("refused", "not here", retryable=False), '"code":"refused"'),
        (CanceledOutcome(), '"disposition":"canceled"'),
    ],
)
async def test_what_a_device_reports_is_an_end(outcome: Any, kept: str) -> None:
    scene = Scene()
    async with scene.dispatching() as asking:
        assert await scene.site.ask_to_give()
        scene.site.end(result(outcome))
        await asking
    assert kept in scene.kept()


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        (JobEndReason.EXPIRED, "expired"),
        (JobEndReason.EVICTED_UNSEALED, "given-up"),
        (JobEndReason.CANCELLED, "cancelled"),
        (JobEndReason.RESULT_DROPPED, "dropped"),
        (JobEndReason.UNKNOWN, "given-up"),
    ],
)
async def test_a_job_that_ends_without_a_result_after_the_prompt_was_given(
    reason: JobEndReason, why: str
) -> None:
    scene = Scene()
    async with scene.dispatching() as asking:
        assert await scene.site.ask_to_give()
        scene.site.end(JobEndedError(JOB, reason))
        await asking
    assert scene.kept() == f'{{"disposition":"none","retryable":true,"why":"{WhyNone(why).value}"}}'


@pytest.mark.parametrize(
    "ending",
    [
        *(JobEndedError(JOB, reason) for reason in JobEndReason),
        SiteClosedError(JOB),
        SealError("too large"),
        relay_refusal("QUOTA_EXCEEDED"),
    ],
)
async def test_a_job_that_ends_before_the_prompt_was_given_was_not_asked(ending: Exception) -> None:
    scene = Scene()
    async with scene.dispatching() as asking:
        scene.site.end(ending)
        with pytest.raises(NotSentError):
            await asking
        # Nothing of it leaves afterwards either.
        assert not await scene.site.ask_to_give()
    assert scene.records.artifacts == {}


@pytest.mark.parametrize("ending", [SiteClosedError(JOB), relay_refusal("DEVICE_REVOKED")])
async def test_an_end_that_tells_nothing_leaves_the_outcome_open(ending: Exception) -> None:
    scene = Scene()
    async with scene.dispatching() as asking:
        assert await scene.site.ask_to_give()
        scene.site.end(ending)
        with pytest.raises(type(ending)):
            await asking
    assert scene.records.artifacts == {}


async def test_a_result_that_does_not_verify_is_no_evidence() -> None:
    scene = Scene()
    async with scene.dispatching() as asking:
        scene.site.end(ResultRefusedError(JOB, "its envelope is forged"))
        with pytest.raises(ResultRefusedError):
            await asking
    assert scene.records.artifacts == {}


async def test_a_relay_that_is_away_is_waited_for() -> None:
    scene = Scene()
    scene.site.refusals = [
        relay_refusal("", UNAVAILABLE),
        relay_refusal("STORE_UNAVAILABLE", UNAVAILABLE),
        relay_refusal("SLOT_WAITING", retry_after_ms=3_000),
    ]
    asking = asyncio.ensure_future(scene.asking.dispatch(scene.action, scene.signal))
    while len(scene.site.enqueued) < 4:
        await scene.clock.advance_async(2_000)
    await eventually(lambda: scene.site.handles)
    scene.site.end(result())
    await asking


@pytest.mark.parametrize(
    "refusal", [relay_refusal("STUB_SITE_MISMATCH"), ValueError("this is a payload of another kind")]
)
async def test_a_question_that_the_relay_will_not_have_was_not_asked(refusal: Exception) -> None:
    scene = Scene()
    scene.site.refusals = [refusal]
    with pytest.raises(NotSentError):
        await scene.asking.dispatch(scene.action, scene.signal)
    assert len(scene.site.enqueued) == 1


async def test_nothing_is_asked_once_it_is_too_late() -> None:
    scene = Scene()
    scene.clock.advance(600_000)
    with pytest.raises(NotSentError, match="too late"):
        await scene.asking.dispatch(scene.action, scene.signal)
    assert scene.site.enqueued == []


@pytest.mark.parametrize("field", ["destination", "version", "args"])
async def test_an_action_of_somebody_else_is_not_asked(field: str) -> None:
    from dataclasses import replace

    scene = Scene()
    changes: dict[str, Any] = {
        "destination": {"destination": "relay:other"},
        "version": {"connector_version": "relay@2"},
        "args": {"args_json": b'{"text":"hello"}'},
    }
    with pytest.raises(NotSentError):
        await scene.asking.dispatch(replace(scene.action, **changes[field]), scene.signal)
    assert scene.site.enqueued == []


async def test_a_cancel_reaches_the_device() -> None:
    scene = Scene()
    scene.site.on_cancel = lambda handle: handle.ending.set_result(result(CanceledOutcome()))
    async with scene.dispatching() as asking:
        assert await scene.site.ask_to_give()
        scene.signal.set(StopCause.CANCEL_REQUESTED)
        await asking
    assert scene.site.said == ["cancel", "abandon"]
    assert '"disposition":"canceled"' in scene.kept()


async def test_a_cancel_before_the_prompt_has_left_keeps_it_here() -> None:
    scene = Scene()
    scene.records.writing.clear()
    async with scene.dispatching() as asking:
        giving = asyncio.ensure_future(scene.site.ask_to_give())
        await eventually(lambda: scene.records.entered == 1)
        scene.signal.set(StopCause.CANCEL_REQUESTED)
        with pytest.raises(NotSentError):
            await asking
        scene.records.writing.set()
        assert not await giving
    assert scene.site.said == ["cancel", "abandon"]


async def test_a_cancel_that_nobody_answers_is_looked_up_later() -> None:
    scene = Scene()
    async with scene.dispatching() as asking:
        assert await scene.site.ask_to_give()
        scene.signal.set(StopCause.CANCEL_REQUESTED)
        await eventually(lambda: "cancel" in scene.site.said)
        await scene.clock.advance_async(29_999)
        assert not asking.done()
        await scene.clock.advance_async(1)
        with pytest.raises(OutcomeOpenError):
            await asking


async def test_a_relay_that_says_nothing_at_all_is_not_waited_for_for_ever() -> None:
    scene = Scene()
    async with scene.dispatching() as asking:
        assert await scene.site.ask_to_give()
        # The deadline, and what the clocks may be apart.
        await scene.clock.advance_async(600_000 + 119_999)
        assert not asking.done()
        await scene.clock.advance_async(1)
        with pytest.raises(OutcomeOpenError):
            await asking
    assert scene.clock.now_ms() == NOW_MS + 720_000


async def test_a_worker_that_stops_leaves_the_job_to_the_next_one() -> None:
    scene = Scene()
    async with scene.dispatching() as asking:
        assert await scene.site.ask_to_give()
        scene.signal.set(StopCause.WORKER_STOPS)
        await scene.clock.advance_async(1_000)
        assert not asking.done()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not await scene.site.ask_to_give("l-1")
    assert scene.site.said == ["abandon"]


async def test_an_answer_that_is_too_large_to_keep_is_an_end() -> None:
    scene = Scene()
    scene.records.largest = 100
    async with scene.dispatching() as asking:
        assert await scene.site.ask_to_give()
        scene.site.end(result())
        assert await asking == f"artifact:{ARTIFACT}"
    assert scene.kept() == '{"disposition":"none","retryable":true,"why":"too-large"}'
