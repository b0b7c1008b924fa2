"""Records as their readers see them: the journal, artifacts and checkpoints."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from durable_service.client.calls import Calls
from durable_service.client.json_text import decode_json
from durable_service.client.methods import GET_ARTIFACT, GET_SNAPSHOT, LIST_EVENTS, WATCH_EVENTS
from durable_service.client.times import milliseconds_of
from durable_service.core.canonical_json import JsonValue
from sealwork.durable.v1 import record_pb2
from sealwork.durable.v1 import record_service_pb2 as pb

_PAGE = 500


class ContentError(Exception):
    """The bytes that came are not those that were put."""


@dataclass(frozen=True, slots=True)
class Event:
    """An entry of a task's journal; `at_ms` is epoch milliseconds by the store's clock."""

    sequence: int
    type: str
    at_ms: int
    attempt_id: str | None
    fence: int
    data: JsonValue


@dataclass(frozen=True, slots=True)
class Gap:
    """Events that are no longer retained: those between `after` and `earliest`, both left out."""

    after: int
    earliest: int
    latest: int


Entry: TypeAlias = Event | Gap


class RecordReader:
    """Reads the records of any task that the caller may see."""

    def __init__(self, calls: Calls) -> None:
        """Read by these calls."""
        self._calls = calls

    async def events(
        self, task_id: str, *, after: int = 0, types: Sequence[str] = (), limit: int = _PAGE
    ) -> list[Event]:
        """Return up to `limit` events after a position, oldest first.

        Raises:
            DurableError: `EVENT_GAP` when the position lies outside what is retained; the metadata has
                `earliest` and `latest`.
        """
        request = pb.ListEventsRequest(task_id=task_id, after_sequence=after, types=types, page_size=limit)
        return [event_of(each) for each in (await self._calls.call(LIST_EVENTS, request)).events]

    async def follow(
        self, task_id: str, *, after: int = 0, types: Sequence[str] = (), follow: bool = True
    ) -> AsyncIterator[Entry]:
        """Yield events as they are written, until the task has ended; a lost stream is taken up again.

        Args:
            task_id: The task.
            after: The events after this position; 0 for the start.
            types: Only these; empty for all.
            follow: False ends after the newest event.

        Raises:
            DurableError: It was refused.
        """

        def request() -> pb.WatchEventsRequest:
            return pb.WatchEventsRequest(task_id=task_id, after_sequence=after, types=types, follow=follow)

        async for frame in self._calls.watch(WATCH_EVENTS, request, ends=True):
            for entry in _entries(frame):
                yield entry
            after = _position(frame, after)

    async def artifact(self, task_id: str, artifact_id: str) -> bytes:
        """Return the bytes of an artifact.

        Raises:
            ContentError: They are not those that were put.
            DurableError: There are none for this caller.
        """
        return await download(self._calls, task_id, artifact_id)

    async def snapshot(self, task_id: str, checkpoint_id: str) -> JsonValue:
        """Return the value of a checkpoint.

        Raises:
            DurableError: There is none for this caller.
        """
        request = pb.GetSnapshotRequest(task_id=task_id, checkpoint_id=checkpoint_id)
        return decode_json((await self._calls.call(GET_SNAPSHOT, request)).value)


async def download(calls: Calls, task_id: str, artifact_id: str) -> bytes:
    """Return the bytes of an artifact, checked against its digest.

    Raises:
        ContentError: They are not those that were put.
        DurableError: The service refused, or the stream was lost.
    """
    content = bytearray()
    reference = record_pb2.ArtifactReference()
    request = pb.GetArtifactRequest(task_id=task_id, artifact_id=artifact_id)
    async for message in calls.follow(GET_ARTIFACT, request):
        if message.WhichOneof("part") == "artifact":
            reference = message.artifact
        content += message.chunk
    # A stream that ends early has neither.
    if len(content) != reference.size_bytes or reference.digest != _digest(content):
        raise ContentError(f"the artifact {artifact_id} came with other bytes than were put")
    return bytes(content)


def event_of(event: record_pb2.Event) -> Event:
    """Return what an event's message tells."""
    return Event(
        event.sequence,
        event.type,
        milliseconds_of(event.event_time),
        event.attempt_id if event.HasField("attempt_id") else None,
        event.fence,
        decode_json(event.data) if event.data else None,
    )


def _entries(frame: pb.WatchEventsResponse) -> list[Entry]:
    if frame.HasField("gap"):
        return [Gap(frame.gap.after_sequence, frame.gap.earliest_sequence, frame.gap.latest_sequence)]
    return [event_of(each) for each in frame.batch.events]


def _position(frame: pb.WatchEventsResponse, after: int) -> int:
    match frame.WhichOneof("frame"):
        case "batch":
            return frame.batch.events[-1].sequence if frame.batch.events else after
        case "bookmark":
            return frame.bookmark.sequence
        case "gap":
            return frame.gap.earliest_sequence - 1
        case _:
            return after


def _digest(content: bytes | bytearray) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()
