"""Records of a task: its journal, its artifacts, its checkpoints."""

import hashlib
from collections.abc import AsyncIterator
from typing import Any, Final

from durable_service.caller import Caller, for_caller, visible
from durable_service.core.artifacts import (
    ArtifactContent,
    checked_content,
    checkpoint_content,
    put_artifact,
    put_checkpoint,
    readable_artifact,
    readable_snapshot,
)
from durable_service.core.binding import blob_key, bytes_digest
from durable_service.core.canonical_json_reader import parse_canonical
from durable_service.core.errors import DomainError, Reason
from durable_service.core.model import ArtifactReference, Holder, Snapshot, TaskEvent, TaskRecord
from durable_service.core.step import Decision
from durable_service.planes.convert import (
    holder_of,
    milliseconds_of_duration,
    status_message,
    timestamp_of,
    write_instant,
    write_status,
)
from durable_service.planes.parts import Parts
from durable_service.planes.refusals import content_mismatch
from durable_service.planes.task_calls import PAGE_BYTES
from durable_service.planes.task_messages import artifact_message
from durable_service.planes.validation import Checks, check_lease
from durable_service.store.base import EventDraft
from sealwork.durable.v1 import record_pb2, record_service_pb2
from service_common.deadlines import within
from service_common.sessions.endings import protocol_violation

CHUNK_BYTES: Final = 65_536
MOST_TYPES: Final = 32
EVENTS_AT_ONCE: Final = 256
_PROGRESS_SECONDS: Final = 60.0


class RecordCalls:
    """The calls of RecordService that are no watches."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._store = parts.store
        self._blobs = parts.blobs

    # -- the journal --------------------------------------------------------------------

    async def append_event(
        self, caller: Caller, request: record_service_pb2.AppendEventRequest
    ) -> record_service_pb2.AppendEventResponse:
        check_lease(request.lease)
        draft = EventDraft(request.event_id, request.type, parse_canonical(request.data, "data"))
        key = caller.key(request.lease.task_id)
        visible(caller, await self._store.get(key))
        decision = await self._store.append(key, holder_of(caller, request.lease), draft)
        response = record_service_pb2.AppendEventResponse(
            sequence=decision.answer.sequence, duplicate=not decision.written
        )
        write_instant(response.event_time, decision.answer.at_ms)
        write_status(response.status, decision.record)
        return response

    async def list_events(
        self, caller: Caller, request: record_service_pb2.ListEventsRequest
    ) -> record_service_pb2.ListEventsResponse:
        checks = Checks()
        size = checks.page(request.page_size)
        checks.identifier("task_id", request.task_id)
        check_types(checks, request.types)
        checks.raise_faults()
        key = caller.key(request.task_id)
        visible(caller, await self._store.get(key))
        response = record_service_pb2.ListEventsResponse(next_after_sequence=request.after_sequence)
        room = PAGE_BYTES
        while True:
            page = await self._store.events(key, response.next_after_sequence, EVENTS_AT_ONCE)
            response.earliest_sequence, response.latest_sequence = page.earliest, page.latest
            for event in page.events:
                if not request.types or event.type in request.types:
                    message = event_message(event)
                    room -= message.ByteSize()
                    if len(response.events) == size or (room < 0 and response.events):
                        return response
                    response.events.append(message)
                response.next_after_sequence = event.sequence
            if len(page.events) < EVENTS_AT_ONCE:
                return response

    # -- artifacts ----------------------------------------------------------------------

    async def put_artifact(
        self, caller: Caller, requests: AsyncIterator[record_service_pb2.PutArtifactRequest]
    ) -> record_service_pb2.PutArtifactResponse:
        first = await anext(requests)
        if first.WhichOneof("part") != "header":
            raise protocol_violation("the first message of an upload is its header")
        header = first.header
        check_lease(header.lease)
        content = checked_content(
            ArtifactContent(
                header.artifact_id,
                header.digest,
                header.size_bytes,
                header.media_type,
                milliseconds_of_duration(header.time_to_live),
            ),
            self._parts.artifact_bytes,
        )
        holder = holder_of(caller, header.lease)
        key = caller.key(header.lease.task_id)
        record = visible(caller, await self._store.get(key))
        # Everything that could stand against it is asked before a byte is taken.
        put_artifact(record, holder, content, await self._store.now_ms())
        data = await self._collect(requests, content)
        await self._blobs.put(blob_key(key, content.id, content.digest), data)
        created, decision = await self._refer(caller, header.lease.task_id, holder, content)
        return record_service_pb2.PutArtifactResponse(
            artifact=artifact_message(decision.answer),
            created=created,
            status=status_message(decision.record),
        )

    async def get_artifact(
        self, caller: Caller, request: record_service_pb2.GetArtifactRequest
    ) -> tuple[ArtifactReference, bytes]:
        """The reference of an artifact and the bytes that are asked for."""
        checks = Checks()
        checks.identifier("task_id", request.task_id)
        checks.identifier("artifact_id", request.artifact_id)
        checks.raise_faults()
        record = visible(caller, await self._store.get(caller.key(request.task_id)))
        reference = readable_artifact(record, request.artifact_id, await self._store.now_ms())
        checks.count("offset_bytes", request.offset_bytes, 0, reference.size_bytes)
        checks.raise_faults()
        return reference, (await self._bytes_of(reference))[request.offset_bytes :]

    async def put_checkpoint(
        self, caller: Caller, request: record_service_pb2.PutCheckpointRequest
    ) -> record_service_pb2.PutCheckpointResponse:
        check_lease(request.lease)
        data = parse_canonical(request.value, "value").encode()
        content = checkpoint_content(
            request.checkpoint_id,
            bytes_digest(data),
            len(data),
            milliseconds_of_duration(request.time_to_live),
            self._parts.artifact_bytes,
        )
        holder = holder_of(caller, request.lease)
        key = caller.key(request.lease.task_id)
        record = visible(caller, await self._store.get(key))
        put_checkpoint(record, holder, request.checkpoint_id, content, await self._store.now_ms())
        await self._blobs.put(blob_key(key, content.id, content.digest), data)

        def command(record: TaskRecord, now_ms: int) -> Decision[Snapshot]:
            return put_checkpoint(record, holder, request.checkpoint_id, content, now_ms)

        decision = await self._store.update(key, for_caller(caller, command))
        return record_service_pb2.PutCheckpointResponse(
            artifact=artifact_message(decision.record.artifacts[content.id]),
            created=decision.written,
            status=status_message(decision.record),
        )

    async def get_snapshot(
        self, caller: Caller, request: record_service_pb2.GetSnapshotRequest
    ) -> record_service_pb2.GetSnapshotResponse:
        checks = Checks()
        checks.identifier("task_id", request.task_id)
        checks.identifier("checkpoint_id", request.checkpoint_id)
        checks.raise_faults()
        record = visible(caller, await self._store.get(caller.key(request.task_id)))
        reference = readable_snapshot(record, request.checkpoint_id, await self._store.now_ms())
        return record_service_pb2.GetSnapshotResponse(
            value=await self._bytes_of(reference), artifact=artifact_message(reference)
        )

    async def _collect(self, requests: AsyncIterator[Any], content: ArtifactContent) -> bytes:
        """The bytes of an upload, when they are those that its header describes."""
        data = bytearray()
        while (chunk := await self._next_chunk(requests)) is not None:
            data += chunk
            if len(data) > content.size_bytes:
                raise content_mismatch("more bytes came than the header names")
        if len(data) < content.size_bytes:
            raise content_mismatch("fewer bytes came than the header names")
        if "sha256:" + hashlib.sha256(data).hexdigest() != content.digest:
            raise content_mismatch("the bytes have another digest than the header names")
        return bytes(data)

    async def _next_chunk(self, requests: AsyncIterator[Any]) -> bytes | None:
        try:
            request = await within(self._parts.clock, _PROGRESS_SECONDS, _next_of(requests))
        except TimeoutError:
            raise protocol_violation("no chunk came for a minute") from None
        if request is None:
            return None
        if request.WhichOneof("part") != "chunk" or not 0 < len(request.chunk) <= CHUNK_BYTES:
            raise protocol_violation(f"after the header come chunks of 1 to {CHUNK_BYTES} bytes")
        chunk: bytes = request.chunk
        return chunk

    async def _refer(
        self, caller: Caller, task_id: str, holder: Holder, content: ArtifactContent
    ) -> tuple[bool, Decision[ArtifactReference]]:
        def command(record: TaskRecord, now_ms: int) -> Decision[ArtifactReference]:
            return put_artifact(record, holder, content, now_ms)

        decision = await self._store.update(caller.key(task_id), for_caller(caller, command))
        return decision.written, decision

    async def _bytes_of(self, reference: ArtifactReference) -> bytes:
        data = await self._blobs.get(reference.blob_key)
        if data is None or len(data) != reference.size_bytes or bytes_digest(data) != reference.digest:
            raise DomainError(Reason.BLOB_CORRUPT, "the bytes of the artifact are not those that were put")
        return data


def event_message(event: TaskEvent) -> record_pb2.Event:
    return record_pb2.Event(
        sequence=event.sequence,
        type=event.type,
        event_time=timestamp_of(event.at_ms),
        attempt_id=event.attempt_id,
        fence=event.fence,
        data=event.data.encode(),
        event_id=event.event_id,
    )


def check_types(checks: Checks, types: Any) -> None:
    """At most 32 types of entries."""
    checks.count("types", len(types), 0, MOST_TYPES)
    for index, name in enumerate(types[:MOST_TYPES]):
        checks.identifier(f"types[{index}]", name)


async def _next_of(requests: AsyncIterator[Any]) -> Any:
    return await anext(requests, None)
