"""What the messages of a write cost by themselves: a call and its answer on a stream, and nothing done."""

import asyncio
from functools import partial
from time import perf_counter
from typing import Any
from uuid import uuid4

import grpc.aio

from bench.durable.child import Child
from bench.durable.messages import frame_of
from bench.durable.writes import WARM_UP_SECONDS, Write, write_in_turn
from bench.variant import BurstResult, VariantFailedError
from durable_service.client.worker_session import WORKER_PLANE
from sealwork.durable.v1 import worker_service_pb2
from service_common.connection import Connection

_START_SECONDS = 60.0


class MessagePairs:
    """Variant: so many streams, each on a connection of its own with one call at a time."""

    def __init__(self, name: str, streams: int) -> None:
        self.name = name
        self._streams = streams
        self._child: Child | None = None
        self._channels: list[grpc.aio.Channel] = []
        self._lanes: list[Write] = []

    async def start(self) -> None:
        self._child = Child("bench.durable.messages")
        address = await self._child.start(_START_SECONDS)
        for _ in range(self._streams):
            channel = Connection(address).session_channel()
            self._channels.append(channel)
            call: grpc.aio.StreamStreamCall[Any, Any] = channel.stream_stream(
                WORKER_PLANE.method,
                worker_service_pb2.WorkerServiceSessionRequest.SerializeToString,
                worker_service_pb2.WorkerServiceSessionResponse.FromString,
            )()
            self._lanes.append(partial(_exchange, call, f"task-{uuid4().hex}"))
        await self.burst(WARM_UP_SECONDS)

    async def burst(self, seconds: float) -> BurstResult:
        assert self._child is not None
        meter, started = self._child.meter(), perf_counter()
        try:
            lanes = await asyncio.gather(*(write_in_turn(lane, started + seconds) for lane in self._lanes))
        except grpc.aio.AioRpcError as error:
            raise VariantFailedError(f"a message was not answered: {error.code().name}") from error
        elapsed = perf_counter() - started
        latencies = [each for lane in lanes for each in lane]
        return BurstResult(len(latencies), latencies, meter.cpu_seconds(), meter.rss_kib(), elapsed)

    async def stop(self) -> None:
        for channel in self._channels:
            await channel.close()
        if self._child is not None:
            await self._child.stop()


async def _exchange(call: "grpc.aio.StreamStreamCall[Any, Any]", task_id: str) -> None:
    await call.write(frame_of(1, task_id, uuid4().hex))
    answer: Any = await call.read()
    if answer is grpc.aio.EOF:
        raise VariantFailedError("the stream ended")
