"""Whatever is sent to whichever method: the caller's fault is told as such, and nothing breaks."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from durable_service.planes.gate import ROLES
from durable_service.principals import Role
from sealwork.durable.v1 import worker_service_pb2
from sealwork.session.v1 import session_pb2
from tests.durable_service.durable_fixture import DurableUnderTest, serving
from tests.durable_service.planes.every_method import WITHOUT_A_TASK, Scene
from tests.durable_service.raw_client import METHODS, Party, Refusal, WorkerStream, path_of, request_type

CALLERS = {
    Role.SUBMITTER: "alice",
    Role.WORKER: "worker",
    Role.APPROVER: "carol",
    Role.OPERATOR: "operator",
    Role.ADMIN: "admin",
}
UNARY = [
    name for name, method in METHODS.items() if not method.client_streaming and not method.server_streaming
]
# One of our own faults, or no status of ours at all.
FAULTS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED}
TEXTS = ["", " ", "\0", "a\nb", "x" * 513, "x" * 100_000, "\u2028", "__proto__", "Ü🎈", "task", "../../etc"]
BYTES = [b"", b"{", b'"\xff"', b"[" * 100, b'{"a":1,"a":1}', b"NaN", b"1e999", b'"\\ud800"', b"null"]
VALUES: dict[int, Sequence[Any]] = {
    FieldDescriptor.TYPE_UINT64: [0, 1, 2**53, 2**64 - 1],
    FieldDescriptor.TYPE_UINT32: [0, 1, 2**32 - 1],
    FieldDescriptor.TYPE_INT64: [-(2**63), -1, 0, 2**63 - 1],
    FieldDescriptor.TYPE_INT32: [-(2**31), -1, 0, 999_999_999, 2**31 - 1],
    FieldDescriptor.TYPE_ENUM: [0, 1, 99, -1],
    FieldDescriptor.TYPE_BOOL: [False, True],
    FieldDescriptor.TYPE_STRING: TEXTS,
    FieldDescriptor.TYPE_BYTES: BYTES,
}


@pytest.fixture(scope="module")
async def service() -> AsyncIterator[DurableUnderTest]:
    async with serving() as running:
        await Scene(running).build()
        yield running


def caller_of(service: DurableUnderTest, name: str) -> Party:
    return service.party(CALLERS[min(ROLES[name])])


async def outcome(party: Party, name: str, body: bytes) -> str:
    try:
        await party.channel.unary_unary(path_of(name))(body, metadata=party.signed(name, body), timeout=20)
    except grpc.aio.AioRpcError as error:
        refusal = Refusal.of_error(error)
        assert refusal.code not in FAULTS, (name, refusal)
        return refusal.reason
    return "answered"


def fill(message: Message, chance: random.Random, depth: int = 0) -> None:
    """Sets fields to what they hardly should be."""
    for field in message.DESCRIPTOR.fields:
        if chance.random() < 0.3:
            continue
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if depth < 4:
                fill_message(message, field, chance, depth)
            continue
        values = VALUES[field.type]
        if field.is_repeated:
            getattr(message, field.name).extend(chance.choices(values, k=chance.choice([1, 3, 70])))
        else:
            setattr(message, field.name, chance.choice(values))


def fill_message(message: Message, field: Any, chance: random.Random, depth: int) -> None:
    if field.is_repeated:
        for _ in range(chance.choice([1, 2, 70])):
            fill(getattr(message, field.name).add(), chance, depth + 1)
        return
    getattr(message, field.name).SetInParent()
    fill(getattr(message, field.name), chance, depth + 1)


def variations(request: Message) -> Iterator[Message]:
    """A good request with one field at a time set to each bad value."""
    for field in request.DESCRIPTOR.fields:
        if field.type == FieldDescriptor.TYPE_MESSAGE or field.is_repeated:
            continue
        for value in VALUES[field.type]:
            varied = type(request)()
            varied.CopyFrom(request)
            setattr(varied, field.name, value)
            yield varied


@pytest.mark.parametrize("name", UNARY)
async def test_bytes_that_are_no_message(service: DurableUnderTest, name: str) -> None:
    assert await outcome(caller_of(service, name), name, b"\xff\xff\xff") == "FIELD_INVALID"


@pytest.mark.parametrize("name", UNARY)
async def test_nothing_at_all(service: DurableUnderTest, name: str) -> None:
    await outcome(caller_of(service, name), name, b"")


@pytest.mark.parametrize("name", UNARY)
async def test_fields_full_of_nonsense(service: DurableUnderTest, name: str) -> None:
    chance = random.Random(name)
    for _ in range(30):
        request = request_type(name)()
        fill(request, chance)
        await outcome(caller_of(service, name), name, request.SerializeToString())


@pytest.mark.parametrize("name", sorted(set(UNARY) - WITHOUT_A_TASK.keys()))
async def test_one_field_that_is_wrong(name: str) -> None:
    async with serving() as service:
        scene = await Scene(service).build()
        for request in variations(scene.request(name)):
            await outcome(caller_of(service, name), name, request.SerializeToString())


@pytest.mark.parametrize("name", ["WatchTasks", "WatchEvents", "GetArtifact", "Watch"])
async def test_watches_full_of_nonsense(service: DurableUnderTest, name: str) -> None:
    chance = random.Random(name)
    party = caller_of(service, name)
    codes = set()
    for _ in range(20):
        request = request_type(name)()
        fill(request, chance)
        async with party.watch(name, request) as frames:
            try:
                await frames.next()
            except grpc.aio.AioRpcError as error:
                codes.add(Refusal.of_error(error).code)
            except StopAsyncIteration:
                continue

    assert codes
    assert codes.isdisjoint(FAULTS)


async def test_frames_full_of_nonsense(service: DurableUnderTest) -> None:
    chance = random.Random(7)
    codes: set[grpc.StatusCode] = set()
    for _ in range(20):
        stream = service.party("worker").open()
        await stream.connect()
        # It may end at any of these.
        with contextlib.suppress(grpc.aio.AioRpcError):
            for _ in range(5):
                await send_nonsense(stream, chance)
            await stream.send(goodbye=session_pb2.Goodbye())
        await asyncio.wait([stream._reader], timeout=20)
        codes.update(refusal.code for refusal in told(stream))
        # A write that meets the end of its stream makes the client forget the status.
        if "grpc-status-details-bin" in dict(await stream.call.trailing_metadata() or ()):
            codes.add((await stream.refusal()).code)
        await stream.close()

    assert grpc.StatusCode.INVALID_ARGUMENT in codes
    assert codes.isdisjoint(FAULTS)


async def send_nonsense(stream: WorkerStream, chance: random.Random) -> None:
    item = worker_service_pb2.WorkerItem()
    fill(item, chance)
    arm = item.WhichOneof("item")
    if arm is not None and item.ByteSize() < 60_000:
        await stream.send(**{arm: getattr(item, arm)})


def told(stream: WorkerStream) -> Iterator[Refusal]:
    """What the stream was refused item by item."""
    for item in stream.items:
        if item.HasField("frame_error"):
            yield Refusal.of_status(item.frame_error.status)
        elif item.HasField("reply") and item.reply.HasField("error"):
            yield Refusal.of_status(item.reply.error)
