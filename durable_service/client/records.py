"""Records that a handler writes: events, checkpoints and artifacts."""

import hashlib
import uuid
from collections.abc import Iterator
from typing import Final

from durable_service.client.errors import DurableError
from durable_service.client.json_text import decode_json, encode_json
from durable_service.client.lease_calls import LeaseCalls
from durable_service.client.methods import APPEND_EVENT, GET_SNAPSHOT, PUT_ARTIFACT, PUT_CHECKPOINT
from durable_service.client.record_reader import download
from durable_service.client.task_view import Artifact, artifact_of
from durable_service.client.times import duration_of
from durable_service.core.canonical_json import JsonValue
from sealwork.durable.v1 import record_service_pb2 as pb

CHUNK_BYTES: Final = 65_536
DAY_MS: Final = 86_400_000

_NONE_YET: Final = frozenset({"SNAPSHOT_NOT_FOUND", "ARTIFACT_EXPIRED"})


class Records:
    """The records of one task, written under one lease.

    Each method raises `LeaseLostError` when the task is no longer this worker's, and `DurableError` for
    another refusal.
    """

    def __init__(self, calls: LeaseCalls) -> None:
        """Write under the lease of `calls`."""
        self._calls = calls

    async def append(self, type_: str, data: JsonValue = None, *, event_id: str | None = None) -> int:
        """Write an event into the journal and return its position.

        Args:
            type_: What kind of entry; begin it with a word of your own, such as `step.done`.
            data: At most 32,768 bytes as canonical JSON.
            event_id: Names it: a repeat with the same id, also by a later run of the handler, adds nothing as
                long as the event is retained. A random one by default.
        """
        request = pb.AppendEventRequest(
            event_id=uuid.uuid4().hex if event_id is None else event_id, type=type_, data=encode_json(data)
        )
        return (await self._calls.settle(APPEND_EVENT, request, "append_event")).sequence

    async def checkpoint(self, checkpoint_id: str, value: JsonValue, *, ttl_ms: int = DAY_MS) -> Artifact:
        """Keep a JSON value, for `ttl_ms` milliseconds; a newer one takes a new id."""
        request = pb.PutCheckpointRequest(
            checkpoint_id=checkpoint_id, value=encode_json(value), time_to_live=duration_of(ttl_ms)
        )
        return artifact_of((await self._calls.settle(PUT_CHECKPOINT, request)).artifact)

    async def snapshot(self, checkpoint_id: str, default: JsonValue = None) -> JsonValue:
        """Read a checkpoint back; the default when there is none, or none any more."""
        request = pb.GetSnapshotRequest(task_id=self._calls.held.task_id, checkpoint_id=checkpoint_id)
        try:
            answer = await self._calls.unary.call(GET_SNAPSHOT, request)
        except DurableError as error:
            if error.reason in _NONE_YET:
                return default
            raise
        return decode_json(answer.value)

    async def artifact(
        self,
        artifact_id: str,
        content: bytes,
        *,
        media_type: str = "application/octet-stream",
        ttl_ms: int = DAY_MS,
    ) -> Artifact:
        """Keep bytes beside the task, for `ttl_ms` milliseconds; other bytes need a new id."""
        header = pb.ArtifactHeader(
            artifact_id=artifact_id,
            size_bytes=len(content),
            digest="sha256:" + hashlib.sha256(content).hexdigest(),
            media_type=media_type,
            time_to_live=duration_of(ttl_ms),
        )
        self._calls.bind(header)
        messages = [pb.PutArtifactRequest(header=header), *_chunks(content)]
        return artifact_of((await self._calls.settle_upload(PUT_ARTIFACT, messages)).artifact)

    async def read_artifact(self, artifact_id: str) -> bytes:
        """Return the bytes of an artifact of this task."""
        return await download(self._calls.unary, self._calls.held.task_id, artifact_id)


def _chunks(content: bytes) -> Iterator[pb.PutArtifactRequest]:
    for start in range(0, len(content), CHUNK_BYTES):
        yield pb.PutArtifactRequest(chunk=content[start : start + CHUNK_BYTES])
