"""RecordService: convert, call, convert."""

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from durable_service.planes.event_watch import EventWatch
from durable_service.planes.gate import errors_told
from durable_service.planes.parts import Parts
from durable_service.planes.record_calls import CHUNK_BYTES, RecordCalls
from durable_service.planes.task_messages import artifact_message
from sealwork.durable.v1 import record_service_pb2, record_service_pb2_grpc

SERVICE = "sealwork.durable.v1.RecordService"

Context = grpc.aio.ServicerContext[Any, Any]


class RecordPlane(record_service_pb2_grpc.RecordServiceServicer):
    """Serves those who keep records and those who read them."""

    def __init__(self, parts: Parts, calls: RecordCalls) -> None:
        self._parts = parts
        self._gate = parts.gate
        self._calls = calls

    async def AppendEvent(
        self, request: record_service_pb2.AppendEventRequest, context: Context
    ) -> record_service_pb2.AppendEventResponse:
        """Adds a journal entry."""
        return await self._gate.unary("AppendEvent", self._calls.append_event, request)

    async def ListEvents(
        self, request: record_service_pb2.ListEventsRequest, context: Context
    ) -> record_service_pb2.ListEventsResponse:
        """Reads the journal."""
        return await self._gate.unary("ListEvents", self._calls.list_events, request)

    async def PutCheckpoint(
        self, request: record_service_pb2.PutCheckpointRequest, context: Context
    ) -> record_service_pb2.PutCheckpointResponse:
        """Keeps a JSON value."""
        return await self._gate.unary("PutCheckpoint", self._calls.put_checkpoint, request)

    async def GetSnapshot(
        self, request: record_service_pb2.GetSnapshotRequest, context: Context
    ) -> record_service_pb2.GetSnapshotResponse:
        """Reads a checkpoint back."""
        return await self._gate.unary("GetSnapshot", self._calls.get_snapshot, request)

    async def WatchEvents(  # type: ignore[override]
        self, request: record_service_pb2.WatchEventsRequest, context: Context
    ) -> None:
        """Follows the journal of a task."""
        caller = self._gate.caller("WatchEvents")
        with errors_told(), self._parts.watches.open(caller.id, context) as watch:
            await EventWatch(self._parts, caller, request, watch).run()

    async def PutArtifact(
        self, request_iterator: AsyncIterator[record_service_pb2.PutArtifactRequest], context: Context
    ) -> record_service_pb2.PutArtifactResponse:
        """Keeps bytes beside a task."""
        return await self._gate.unary("PutArtifact", self._calls.put_artifact, request_iterator)

    async def GetArtifact(  # type: ignore[override]
        self, request: record_service_pb2.GetArtifactRequest, context: Context
    ) -> None:
        """Reads an artifact."""
        caller = self._gate.caller("GetArtifact")
        with errors_told(), self._parts.watches.open(caller.id, context, limited=False) as watch:
            reference, data = await self._calls.get_artifact(caller, request)
            await watch.send(record_service_pb2.GetArtifactResponse(artifact=artifact_message(reference)))
            for start in range(0, len(data), CHUNK_BYTES):
                chunk = data[start : start + CHUNK_BYTES]
                await watch.send(record_service_pb2.GetArtifactResponse(chunk=chunk))
                watch.raise_end()
