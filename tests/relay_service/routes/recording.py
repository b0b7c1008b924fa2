"""A channel that keeps every byte that comes back over it, and what kinds of message those were."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
from google.protobuf import any_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from tests.relay_service.raw_client import message_type

DETAILS = {
    kind.DESCRIPTOR.full_name: kind
    for kind in (
        error_details_pb2.ErrorInfo,
        error_details_pb2.RetryInfo,
        error_details_pb2.BadRequest,
        error_details_pb2.QuotaFailure,
        error_details_pb2.PreconditionFailure,
        error_details_pb2.Help,
    )
}


@dataclass
class Record:
    """What one party has heard.

    Attributes:
        heard: bytes as they came: messages, and names and values of metadata.
        fields: (message, field) that carried something, by full name, error details included.
        details: type of every error detail.
    """

    heard: list[bytes] = field(default_factory=list)
    fields: set[tuple[str, str]] = field(default_factory=set)
    details: set[str] = field(default_factory=set)

    def note_message(self, path: str, raw: bytes) -> None:
        service, name = path.removeprefix("/sealwork.relay.v1.").split("/")
        self.heard.append(raw)
        self._note(message_type(service, name, answer=True).FromString(raw))

    def note_metadata(self, metadata: Any) -> None:
        for key, value in metadata or ():
            self.heard += [key.encode(), value if isinstance(value, bytes) else value.encode()]
            if key == "grpc-status-details-bin":
                self._note(status_pb2.Status.FromString(value))

    def note_end(self, error: grpc.aio.AioRpcError) -> None:
        self.heard.append((error.details() or "").encode())
        self.note_metadata(error.initial_metadata())
        self.note_metadata(error.trailing_metadata())

    def holds(self, word: str | bytes) -> bool:
        sought = word.encode() if isinstance(word, str) else word
        return any(sought in raw for raw in self.heard)

    def _note(self, message: Message) -> None:
        if isinstance(message, any_pb2.Any):
            self.details.add(message.TypeName())
            inner = DETAILS[message.TypeName()]()
            assert message.Unpack(inner)
            self._note(inner)
            return
        for descriptor, value in message.ListFields():
            self.fields.add((message.DESCRIPTOR.full_name, descriptor.name))
            for each in _messages(descriptor, value):
                self._note(each)


def _messages(descriptor: Any, value: Any) -> list[Message]:
    if descriptor.message_type is None or descriptor.message_type.GetOptions().map_entry:
        return []
    return list(value) if descriptor.is_repeated else [value]


def reachable(descriptor: Descriptor) -> Iterator[Descriptor]:
    """A message and every message within it, ours and those of statuses; times are plain values."""
    found = {descriptor.full_name: descriptor}
    waiting = [descriptor]
    while waiting:
        for each in waiting.pop().fields:
            inner = each.message_type
            if inner is None or inner.full_name in found or inner.full_name.startswith("google.protobuf."):
                continue
            found[inner.full_name] = inner
            waiting.append(inner)
    yield from found.values()


class RecordingChannel:
    """Stands in for a channel; takes and gives bytes unless serializers are given."""

    def __init__(self, channel: Any, record: Record) -> None:
        self._channel = channel
        self._record = record

    def unary_unary(
        self, path: str, request_serializer: Any = None, response_deserializer: Any = None, **_: Any
    ) -> Any:
        method = self._channel.unary_unary(path, request_serializer)

        async def call(request: Any, **options: Any) -> Any:
            running = method(request, **options)
            try:
                answer = await running
            except grpc.aio.AioRpcError as error:
                self._record.note_end(error)
                raise
            self._record.note_message(path, answer)
            self._record.note_metadata(await running.initial_metadata())
            self._record.note_metadata(await running.trailing_metadata())
            return response_deserializer(answer) if response_deserializer else answer

        return call

    def unary_stream(
        self, path: str, request_serializer: Any = None, response_deserializer: Any = None, **_: Any
    ) -> Any:
        method = self._channel.unary_stream(path, request_serializer)
        return lambda request, **options: RecordedStream(
            method(request, **options), path, self._record, response_deserializer
        )

    def stream_stream(
        self, path: str, request_serializer: Any = None, response_deserializer: Any = None, **_: Any
    ) -> Any:
        method = self._channel.stream_stream(path, request_serializer)
        return lambda **options: RecordedStream(method(**options), path, self._record, response_deserializer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)


class RecordedStream:
    """A call whose answers come as a stream."""

    def __init__(self, call: Any, path: str, record: Record, deserialize: Any) -> None:
        self._call = call
        self._path = path
        self._record = record
        self._deserialize = deserialize

    async def read(self) -> Any:
        try:
            raw = await self._call.read()
        except grpc.aio.AioRpcError as error:
            self._record.note_end(error)
            raise
        if raw is grpc.aio.EOF:
            self._record.note_metadata(await self._call.initial_metadata())
            self._record.note_metadata(await self._call.trailing_metadata())
            self._record.heard.append((await self._call.details() or "").encode())
            return raw
        self._record.note_message(self._path, raw)
        return self._deserialize(raw) if self._deserialize else raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)
