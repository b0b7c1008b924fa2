"""Looking up what came of a question: what is taken for a proof of what."""

import pytest

from durable_service.client.connectors import Absent, Found, RecordingConnector, SettlingConnector, Unsettled
from relay_connector import QuestionError
from relay_service.client import ErrorOutcome, RelayError, ResultRefusedError
from tests.relay_connector.played_parties import (
    ARTIFACT,
    GIVEN,
    JOB,
    Scene,
    durable_refusal,
    relay_refusal,
    result,
)

# 600,000 ms to the deadline, and two minutes that the clocks may be apart.
OVER_MS = 720_000


def given(scene: Scene) -> None:
    scene.records.checkpoints[GIVEN] = ({"given": True}, 1)


def test_it_keeps_records_and_is_told() -> None:
    scene = Scene()
    assert isinstance(scene.connector, RecordingConnector)
    assert isinstance(scene.asking, SettlingConnector)
    assert scene.connector.version == scene.asking.version == "relay@1"


async def test_a_result_at_the_relay_is_kept_and_is_the_proof() -> None:
    scene = Scene()
    given(scene)
    scene.site.there = result()
    assert await scene.asking.reconcile(scene.action) == Found(f"artifact:{ARTIFACT}", f"relay-result:{JOB}")
    assert '"content":"an answer"' in scene.kept()
    # The action is not confirmed by that yet.
    assert scene.site.settled == []


async def test_an_error_that_the_device_reports_is_an_end_too() -> None:
    scene = Scene()
    given(scene)
    scene.site.there = result(ErrorOutcome("refused", "not here", retryable=False))
    assert await scene.asking.reconcile(scene.action) == Found(f"artifact:{ARTIFACT}", f"relay-result:{JOB}")
    assert '"disposition":"error"' in scene.kept()


async def test_an_answer_that_is_kept_already_is_the_proof_whatever_the_relay_has_forgotten() -> None:
    scene = Scene()
    scene.records.artifacts[ARTIFACT] = (b"kept", "application/json", 1)
    scene.clock.advance(OVER_MS)
    assert await scene.asking.reconcile(scene.action) == Found(
        f"artifact:{ARTIFACT}", f"relay-answer-kept:{JOB}"
    )
    assert (scene.site.said, scene.records.puts) == ([], 0)


@pytest.mark.parametrize("passed_ms", [0, OVER_MS - 1])
async def test_a_job_that_is_not_finished_settles_nothing(passed_ms: int) -> None:
    scene = Scene()
    given(scene)
    scene.clock.advance(passed_ms)
    scene.site.there = relay_refusal("RESULT_NOT_READY")
    assert await scene.asking.reconcile(scene.action) == Unsettled(f"relay-job-unfinished:{JOB}")


@pytest.mark.parametrize("passed_ms", [0, OVER_MS - 1])
async def test_a_job_that_the_relay_does_not_know_settles_nothing_before_its_deadline(passed_ms: int) -> None:
    scene = Scene()
    given(scene)
    scene.clock.advance(passed_ms)
    assert await scene.asking.reconcile(scene.action) == Unsettled(f"relay-job-unknown:{JOB}")
    assert scene.records.artifacts == {}


async def test_a_prompt_that_was_given_and_brought_nothing_by_its_deadline_has_no_answer() -> None:
    scene = Scene()
    given(scene)
    scene.clock.advance(OVER_MS)
    assert await scene.asking.reconcile(scene.action) == Found(
        f"artifact:{ARTIFACT}", f"relay-job-over:{JOB}"
    )
    assert scene.kept() == '{"disposition":"none","retryable":true,"why":"expired"}'


@pytest.mark.parametrize("passed_ms", [0, OVER_MS])
@pytest.mark.parametrize("reason", ["JOB_NOT_FOUND", "RESULT_NOT_READY"])
async def test_a_prompt_that_was_never_given_did_not_happen(passed_ms: int, reason: str) -> None:
    scene = Scene()
    scene.clock.advance(passed_ms)
    scene.site.there = relay_refusal(reason)
    assert await scene.asking.reconcile(scene.action) == Absent(f"relay-prompt-not-given:{JOB}:7")
    assert scene.records.artifacts == {}


@pytest.mark.parametrize(
    "there", [relay_refusal("STORE_UNAVAILABLE"), ResultRefusedError(JOB, "its envelope is forged")]
)
async def test_what_proves_nothing_changes_nothing(there: Exception) -> None:
    scene = Scene()
    given(scene)
    scene.clock.advance(OVER_MS)
    scene.site.there = there
    with pytest.raises((RelayError, ResultRefusedError)):
        await scene.asking.reconcile(scene.action)
    assert scene.records.artifacts == {}


async def test_an_answer_that_cannot_be_kept_is_not_confirmed() -> None:
    scene = Scene()
    scene.site.there = result()
    scene.records.refusal = durable_refusal("LEASE_LOST")
    with pytest.raises(Exception, match="LEASE_LOST"):
        await scene.asking.reconcile(scene.action)


async def test_an_action_of_somebody_else_is_not_looked_up() -> None:
    from dataclasses import replace

    scene = Scene()
    with pytest.raises(QuestionError):
        await scene.asking.reconcile(replace(scene.action, destination="relay:other"))
    assert scene.site.said == []
