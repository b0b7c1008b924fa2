"""Keeping an answer beside the task, once, and finding it there."""

from typing import Final

from durable_service.client.errors import DurableError
from durable_service.client.records import Records
from relay_connector.answer import PREFIX, Answer, WhyNone
from relay_connector.question import artifact_name

_MEDIA_TYPE: Final = "application/json"
_MISSING: Final = frozenset({"ARTIFACT_NOT_FOUND", "ARTIFACT_EXPIRED"})


async def keep_answer(records: Records, job_id: str, answer: Answer, *, keep_ms: int) -> str:
    """Put an answer beside the task and return the reference to it; a repeat changes nothing.

    Raises:
        LeaseLostError: The task is no longer this worker's.
        DurableError: The service refused.
    """
    artifact_id = artifact_name(job_id)
    try:
        await _put(records, artifact_id, answer, keep_ms)
    except DurableError as error:
        if error.reason != "ARTIFACT_TOO_LARGE":
            raise
        # It will be as large the next time: better an end than a task that stands still for ever.
        await _put(records, artifact_id, Answer.none(WhyNone.TOO_LARGE), keep_ms)
    return PREFIX + artifact_id


async def kept_answer(records: Records, job_id: str) -> str | None:
    """Return the reference to the answer that is kept already; None when there is none.

    Raises:
        DurableError: The service refused.
    """
    artifact_id = artifact_name(job_id)
    try:
        await records.read_artifact(artifact_id)
    except DurableError as error:
        if error.reason in _MISSING:
            return None
        raise
    return PREFIX + artifact_id


async def _put(records: Records, artifact_id: str, answer: Answer, keep_ms: int) -> None:
    await records.artifact(artifact_id, answer.to_bytes(), media_type=_MEDIA_TYPE, ttl_ms=keep_ms)
